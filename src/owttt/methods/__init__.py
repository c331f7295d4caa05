"""The methods, one a file. A new one is a file here and a line in `METHODS`."""

from typing import Final

from owttt.methods.base import Method
from owttt.methods.bn import BatchNorm
from owttt.methods.owttt import OWTTT
from owttt.methods.shot import Shot
from owttt.methods.tent import Tent
from owttt.methods.test import Test
from owttt.methods.ttac import TTAC
from owttt.methods.ttt_plus_plus import TTTPlusPlus

METHODS: Final[dict[str, type[Method]]] = {
    method.name: method for method in (Test, BatchNorm, Tent, Shot, TTTPlusPlus, TTAC, OWTTT)
}

__all__ = ["METHODS", "OWTTT", "TTAC", "BatchNorm", "Shot", "TTTPlusPlus", "Tent", "Test"]
