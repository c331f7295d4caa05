"""Data sets by name, corruptions, and the streams made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from owttt._utils.lazy import attributes

if TYPE_CHECKING:
    from owttt.data.catalog import data_root
    from owttt.data.dataset import Dataset
    from owttt.data.fetching.fetch import get
    from owttt.data.modalities import Frame
    from owttt.data.naming import DataName
    from owttt.data.registry import load, names
    from owttt.data.streams.spec import StreamSpec
    from owttt.data.streams.stream import Batch, Stream

__getattr__, __dir__ = attributes(
    "owttt.data",
    {
        "data_root": "catalog",
        "Dataset": "dataset",
        "get": "fetching.fetch",
        "Frame": "modalities",
        "DataName": "naming",
        **dict.fromkeys(("load", "names"), "registry"),
        "StreamSpec": "streams.spec",
        **dict.fromkeys(("Batch", "Stream"), "streams.stream"),
    },
)

__all__ = ["Batch", "DataName", "Dataset", "Frame", "Stream", "StreamSpec", "data_root", "get", "load", "names"]
