"""Results as one page: opens from disk, asks nothing of the network, reads on a phone, light or dark."""

from owttt.bench.report.page import render

__all__ = ["render"]
