"""Data sets by name, corruptions, and the streams made of them."""

from owttt.data.catalog import data_root, names
from owttt.data.dataset import Dataset, Frame
from owttt.data.fetching.fetch import get
from owttt.data.registry import load
from owttt.data.streams.spec import StreamSpec
from owttt.data.streams.stream import Batch, Stream

__all__ = ["Batch", "Dataset", "Frame", "Stream", "StreamSpec", "data_root", "get", "load", "names"]
