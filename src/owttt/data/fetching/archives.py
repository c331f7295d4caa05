"""Unpacking archives that nobody vouches for: every name, link, size and count is checked before a byte is written.

Python's own extraction is not relied on: its filters and its parser had holes (CVE-2025-4517, CVE-2024-6232 and their
kin), and which patch level runs here cannot be known. Members are read one after the other and written by us, as new
files below one folder; links, devices, sparse files, encrypted members, names that leave the folder and names that come
twice are refused, and so is an archive that does not end as archives do.
"""

from __future__ import annotations

import errno
import gzip
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Final, Protocol, final

MEMBERS: Final = 2_000_000
"""Files and folders that an archive may have; ImageNet's training set has 1.3 million."""

RATIO: Final = 1_100
"""How much longer than its archive a content may be: deflate cannot do more than 1,032."""

HEADER: Final = 2**16
"""Bytes that an extended header of one member may take: a long name, a time, an owner."""

BLOCK: Final = 512
"""Bytes that a tar archive is made of."""

_CHUNK: Final = 2**18
_PADDING: Final = 2**24
_LONGEST: Final = 1_000
_LONGEST_PART: Final = 255
_UNREADABLE: Final = (
    *(zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError, OverflowError),
    *(NotImplementedError, IndexError, KeyError, RecursionError),
)


class UnsafeArchiveError(OSError):
    """An archive that asks for more than to be unpacked; it is not worth keeping."""


def unpack(file: Path, folder: Path, limit: int) -> None:
    """Unpack an archive into a folder, or copy a plain file there; all of it may take `limit` bytes.

    Raises:
        UnsafeArchiveError: It is damaged, or no honest archive; what came before in it may have been written.
    """
    limit = min(limit, RATIO * max(file.stat().st_size, 1024))
    try:
        if file.name.endswith(".zip"):
            _unzip(file, folder, limit)
        elif file.name.endswith((".tar", ".tar.gz", ".tgz")):
            _untar(file, folder, limit)
        elif file.suffix == ".gz":
            with gzip.open(file) as packed, (folder / file.stem).open("xb") as plain:
                _copy(packed, plain, limit, file.stem)
        else:
            shutil.copy(file, folder)
    except _UNREADABLE as error:
        raise UnsafeArchiveError(f"{file.name} cannot be unpacked ({error})") from error
    except UnsafeArchiveError as error:
        raise UnsafeArchiveError(f"{file.name} is refused: {error}") from error
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise UnsafeArchiveError(f"{file.name} cannot be unpacked ({error})") from error
        raise OSError(f"{file.name} cannot be unpacked ({error})") from error


def _untar(file: Path, folder: Path, limit: int) -> None:
    room = _Room(folder, limit)
    with _plain(file) as stream:
        for name, size, is_folder in _members(stream):
            if is_folder:
                room.folder(name)
                continue
            room.file(name, size, _Part(stream, size))
            _exactly(stream, -size % BLOCK)


def _members(stream: _Readable) -> Iterator[tuple[str, int, bool]]:
    """Yield name, size and whether it is a folder of every member; its bytes are to be read before the next.

    The ustar format (POSIX.1-1988) with GNU's long names and pax' `path` and `size` (POSIX.1-2001).
    """
    path: str | None = None
    size: int | None = None
    while True:
        header = _exactly(stream, BLOCK)
        if not any(header):
            if path is not None or size is not None:
                raise UnsafeArchiveError("its last header belongs to no member")
            _check_end(stream)
            return
        _check_sum(header)
        kind, length = header[156:157], _number(header[124:136])
        if kind in (b"x", b"g", b"L"):
            extra = _extended(stream, length)
            if kind == b"L":
                path = _text(extra)
            elif kind == b"x":
                path, size = _pax(extra, path, size)
            continue
        name = _text(header[:100]) if path is None else path
        if path is None and header[257:262] == b"ustar" and (prefix := _text(header[345:500])) and header[263] == 48:
            name = f"{prefix}/{name}"
        if kind not in (b"0", b"\0", b"7", b"5"):
            raise UnsafeArchiveError(f"{_shown(name)} is a link, a device or a sparse file")
        is_folder = kind == b"5" or name.endswith("/")
        yield name, 0 if is_folder else length if size is None else size, is_folder
        path = size = None


def _extended(stream: _Readable, length: int) -> bytes:
    if length > HEADER:
        raise UnsafeArchiveError(f"the header of a member has more than {HEADER:,} bytes")
    return _exactly(stream, length + -length % BLOCK)[:length]


def _pax(records: bytes, path: str | None, size: int | None) -> tuple[str | None, int | None]:
    """Read `length key=value` lines; what is not about name or size of a file does not concern us."""
    while records:
        digits, _, _ = records.partition(b" ")
        if not digits.isdigit() or len(digits) > 6 or not len(digits) < int(digits) <= len(records):
            raise UnsafeArchiveError("the extended header of a member is damaged")
        line, records = records[len(digits) + 1 : int(digits)], records[int(digits) :]
        key, _, value = line.removesuffix(b"\n").partition(b"=")
        if key.startswith(b"GNU.sparse"):
            raise UnsafeArchiveError("it has a sparse file")
        if key == b"path":
            path = value.decode("utf-8")
        elif key == b"size":
            size = int(value)
    return path, size


def _number(field: bytes) -> int:
    """Read a number: octal digits, or base 256 where the first bit is set."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & ~(0x80 << 8 * (len(field) - 1))
    return int(field.strip(b" \0") or b"0", 8)


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8")


def _check_sum(header: bytes) -> None:
    if _number(header[148:156]) != sum(header[:148]) + 8 * 32 + sum(header[156:]):
        raise UnsafeArchiveError("the header of a member is damaged")


def _check_end(stream: _Readable) -> None:
    """Read to the end, where a compressed stream is verified; nothing but padding may come."""
    read = 0
    while block := stream.read(_CHUNK):
        read += len(block)
        if any(block) or read > _PADDING:
            raise UnsafeArchiveError("something comes behind its end")


def _exactly(stream: _Readable, count: int) -> bytes:
    blocks, left = [], count
    while left:
        block = stream.read(left)
        if not block:
            raise UnsafeArchiveError("it is cut off")
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


@final
class _Part:
    """The next bytes of a stream as a stream of their own."""

    def __init__(self, stream: _Readable, size: int) -> None:
        self._stream, self._left = stream, size

    def read(self, size: int, /) -> bytes:
        """Read up to `size` bytes, never beyond the part."""
        block = self._stream.read(min(size, self._left))
        self._left -= len(block)
        return block


def _unzip(file: Path, folder: Path, limit: int) -> None:
    room = _Room(folder, limit)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if sum(member.compress_size for member in members) > file.stat().st_size:
            raise UnsafeArchiveError("its members overlap")
        for member in members:
            if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise UnsafeArchiveError(f"{_shown(member.filename)} is encrypted, or packed in an unusual way")
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise UnsafeArchiveError(f"{_shown(member.filename)} is a link or a device")
            if member.is_dir():
                room.folder(member.filename)
                continue
            with archive.open(member) as content:
                room.file(member.filename, member.file_size, content)


@contextmanager
def _plain(file: Path) -> Iterator[IO[bytes]]:
    """Open a tar archive without its compression."""
    with closing(file.open("rb") if file.suffix == ".tar" else gzip.open(file)) as opened:
        yield opened  # type: ignore[misc]


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@final
@dataclass
class _Room:
    """A folder that takes so many bytes and members."""

    root: Path
    bytes: int
    members: int = 0

    def folder(self, name: str) -> None:
        """Make a folder."""
        self._take(name, 0)
        _made(self._place(name), name)

    def file(self, name: str, size: int, content: _Readable) -> None:
        """Write a file that says it has `size` bytes."""
        self._take(name, size)
        place = self._place(name)
        _made(place.parent, name)
        try:
            with place.open("xb") as target:
                written = _copy(content, target, size, name)
        except FileExistsError:
            raise UnsafeArchiveError(f"{_shown(name)} comes twice") from None
        if written != size:
            raise UnsafeArchiveError(f"{_shown(name)} has {written:,} bytes and should have {size:,}")

    def _take(self, name: str, size: int) -> None:
        self.members += 1
        self.bytes -= size
        if self.members > MEMBERS:
            raise UnsafeArchiveError(f"it has more than {MEMBERS:,} members")
        if size < 0 or self.bytes < 0:
            raise UnsafeArchiveError(f"with {_shown(name)} it takes more than this data set can")

    def _place(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        odd = any(
            part == ".." or not part.isprintable() or ":" in part or "\\" in part or len(part.encode()) > _LONGEST_PART
            for part in parts
        )
        if odd or not name or len(name) > _LONGEST or name.startswith("/"):
            raise UnsafeArchiveError(f"{_shown(name)} is no name of a file below a folder")
        return self.root.joinpath(*parts)


def _made(folder: Path, name: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UnsafeArchiveError(f"{_shown(name)} is below a file") from None


def _copy(source: _Readable, target: IO[bytes], limit: int, name: str) -> int:
    written = 0
    while block := source.read(_CHUNK):
        written += len(block)
        if written > limit:
            raise UnsafeArchiveError(f"{_shown(name)} has more than {limit:,} bytes")
        target.write(block)
    return written


def _shown(name: str) -> str:
    return ascii(name[:80])
