"""Open-world test-time training: a classifier that adapts to its stream and says "unknown".

>>> import owttt                                                             # doctest: +SKIP
>>> source = owttt.SourceStats.fit(model, loader, num_classes=10)            # doctest: +SKIP
>>> adapter = owttt.wrap(model, method="owttt", source=source)               # doctest: +SKIP
>>> out = adapter(x)                                                         # doctest: +SKIP
>>> out.label                                                                # doctest: +SKIP
"""

from owttt import data, models
from owttt.adapter import Adapter, wrap
from owttt.detector import SCORES, THRESHOLDS, Fixed, Otsu
from owttt.methods import METHODS
from owttt.methods.base import Method, Setting
from owttt.methods.presets import PRESETS, Preset
from owttt.metrics import OpenWorldMetrics
from owttt.source import SourceStats
from owttt.types import UNKNOWN, Forward, Prediction, Verdict

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "PRESETS",
    "SCORES",
    "THRESHOLDS",
    "UNKNOWN",
    "Adapter",
    "Fixed",
    "Forward",
    "Method",
    "OpenWorldMetrics",
    "Otsu",
    "Prediction",
    "Preset",
    "Setting",
    "SourceStats",
    "Verdict",
    "__version__",
    "data",
    "models",
    "wrap",
]
