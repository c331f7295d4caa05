"""Sizes that a file claims, checked against the file before anything is allocated."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.lib import format as npy

from owttt.data.fetching.archives import RATIO

UNREADABLE: Final = (ValueError, OSError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile, zlib.error)
"""What a damaged zip file raises, somewhere on the way."""


def believable(claimed: int, stored: int, path: Path) -> None:
    """Raise a ValueError if `stored` bytes of a file cannot hold `claimed` bytes, however well they are packed."""
    if claimed > RATIO * max(stored, 1):
        raise ValueError(f"{path}: it claims to hold {claimed:,} bytes in {stored:,}; it is damaged or forged.")


def size_of(shape: Sequence[int], item: int = 1) -> int:
    """Return the bytes of an array."""
    return math.prod(int(length) for length in shape) * item


def check_npz(path: Path) -> None:
    """Raise a ValueError unless the shape of every array in an npz file is that of the bytes behind it."""
    with zipfile.ZipFile(path) as archive:
        for member in (one for one in archive.infolist() if one.filename.endswith(".npy")):
            believable(member.file_size, member.compress_size, path)
            with archive.open(member) as file:
                version = npy.read_magic(file)
                header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, _, dtype = header(file)
                claimed = size_of(shape, np.dtype(dtype).itemsize) + file.tell()
            if claimed != member.file_size and not dtype.hasobject:
                raise ValueError(f"{path}: {member.filename} claims {claimed:,} bytes and has {member.file_size:,}.")
