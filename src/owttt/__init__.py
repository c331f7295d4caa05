"""Open-world test-time training: a classifier that adapts to its stream and says "unknown".

    source = owttt.SourceStats.fit(model, loader, num_classes=10)
    adapter = owttt.wrap(model, method="owttt", source=source)
    adapter(x).labels

Names are imported when they are first used, so that `import owttt` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from owttt._utils.lazy import attributes

if TYPE_CHECKING:
    from owttt import bench, data, models
    from owttt.adapter import Adapter, wrap
    from owttt.detector import SCORES, THRESHOLDS, Evidence, Fixed, NamedScore, Otsu
    from owttt.methods import METHODS, Method
    from owttt.methods.presets import PRESETS, Preset
    from owttt.metrics import OpenWorldMetrics
    from owttt.source import SourceStats
    from owttt.types import UNKNOWN, Forward, Prediction, Verdict

__version__ = "0.1.0"

__getattr__, __dir__ = attributes(
    "owttt",
    {
        **dict.fromkeys(("Adapter", "wrap"), "adapter"),
        **dict.fromkeys(("SCORES", "THRESHOLDS", "Evidence", "Fixed", "NamedScore", "Otsu"), "detector"),
        **dict.fromkeys(("METHODS", "Method"), "methods"),
        **dict.fromkeys(("PRESETS", "Preset"), "methods.presets"),
        **dict.fromkeys(("UNKNOWN", "Forward", "Prediction", "Verdict"), "types"),
        **{room: room for room in ("bench", "data", "models")},
        "OpenWorldMetrics": "metrics",
        "SourceStats": "source",
    },
)

__all__ = [
    "METHODS",
    "PRESETS",
    "SCORES",
    "THRESHOLDS",
    "UNKNOWN",
    "Adapter",
    "Evidence",
    "Fixed",
    "Forward",
    "Method",
    "NamedScore",
    "OpenWorldMetrics",
    "Otsu",
    "Prediction",
    "Preset",
    "SourceStats",
    "Verdict",
    "__version__",
    "bench",
    "data",
    "models",
    "wrap",
]
