"""The product: a classifier that adapts itself when it is called, and says "unknown"."""

from owttt.adapter.adapter import ORDERS, Adapter
from owttt.adapter.answering import CLASSIFIERS, Classifier
from owttt.adapter.wrapping import make_method, wrap

__all__ = ["CLASSIFIERS", "ORDERS", "Adapter", "Classifier", "make_method", "wrap"]
