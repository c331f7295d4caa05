"""The product: a classifier that adapts itself when it is called, and says "unknown"."""

from owttt.adapter.adapter import CLASSIFIERS, ORDERS, Adapter, Classifier
from owttt.adapter.wrapping import make_method, wrap

__all__ = ["CLASSIFIERS", "ORDERS", "Adapter", "Classifier", "make_method", "wrap"]
