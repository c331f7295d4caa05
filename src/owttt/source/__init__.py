"""What a method may know of the source data, fitted once and shipped beside the weights."""

from owttt.source.quantiles import joint_of
from owttt.source.stats import ClassCovariance, SourceInfo, SourceStats, fingerprint

__all__ = ["ClassCovariance", "SourceInfo", "SourceStats", "fingerprint", "joint_of"]
