"""What a method may know of the source data, fitted once and shipped beside the weights."""

from owttt.source.stats import SourceInfo, SourceStats, fingerprint

__all__ = ["SourceInfo", "SourceStats", "fingerprint"]
