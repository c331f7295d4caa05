"""TEST: the source model unchanged, with the detector. The floor every other method has to beat."""

from __future__ import annotations

from typing import final

from torch import Tensor

from owttt.methods.base import Method
from owttt.types import Forward, Verdict


@final
class Test(Method):
    """Predict, never adapt."""

    name = "test"
    cost = 1.0
    color = "#b3b8be"
    adapts = False

    def adapt(self, x: Tensor, out: Forward, verdict: Verdict) -> None:
        """Do nothing."""
