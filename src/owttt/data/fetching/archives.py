"""Unpacking archives that nobody vouches for: every name, link, size and count is checked before a byte is written.

Python's own extraction is not relied on: its filters had holes (CVE-2025-4517 and its kin), and which patch level runs
here cannot be known. Members are read one after the other and written by us, as new files below one folder; links,
devices, sparse files, encrypted members, names that leave the folder and names that come twice are refused.
"""

from __future__ import annotations

import errno
import gzip
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Protocol, cast, final

MEMBERS: Final = 2_000_000
"""Files and folders that an archive may have; ImageNet's training set has 1.3 million."""

RATIO: Final = 1_100
"""How much longer than its archive a content may be: deflate cannot do more than 1,032."""

HEADER: Final = 2**20
"""Bytes that the header of one member may take."""

_BLOCK: Final = 2**18
_LONGEST: Final = 1_000
_UNREADABLE: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error),
    *(EOFError, ValueError, OverflowError, NotImplementedError),
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
    with _plain(file) as plain:
        stream = _Metered(plain)
        with tarfile.open(fileobj=cast(Any, stream), mode="r|") as archive:
            room = _Room(folder, limit)
            while True:
                stream.allow(HEADER)
                member = archive.next()
                if member is None:
                    return
                cast(Any, archive).members = []  # it would keep all of them
                if member.isdir():
                    room.folder(member.name)
                    continue
                if not member.isreg() or member.issparse():
                    raise UnsafeArchiveError(f"{_shown(member.name)} is a link, a device or a sparse file")
                stream.allow(member.size + HEADER)
                content = archive.extractfile(member)
                assert content is not None
                room.file(member.name, member.size, content)


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
class _Metered:
    """A stream of which only so many bytes may be read: a forged header cannot ask for gigabytes of memory."""

    def __init__(self, stream: _Readable) -> None:
        self._stream = stream
        self._left = 2 * HEADER

    def allow(self, count: int) -> None:
        """Allow so many bytes from here on."""
        self._left = count + HEADER

    def read(self, size: int) -> bytes:
        """Read up to `size` bytes."""
        block = self._stream.read(size)
        self._left -= len(block)
        if self._left < 0:
            raise UnsafeArchiveError(f"the header of a member is longer than {HEADER:,} bytes")
        return block


@final
@dataclass
class _Room:
    """A folder that takes so many bytes and members."""

    root: Path
    bytes: int
    members: int = MEMBERS

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
        self.members -= 1
        self.bytes -= size
        if self.members < 0:
            raise UnsafeArchiveError(f"it has more than {MEMBERS:,} members")
        if size < 0 or self.bytes < 0:
            raise UnsafeArchiveError(f"with {_shown(name)} it takes more than this data set can")

    def _place(self, name: str) -> Path:
        parts = PurePosixPath(name).parts
        odd = any(part == ".." or not part.isprintable() or ":" in part or "\\" in part for part in parts)
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
    while block := source.read(_BLOCK):
        written += len(block)
        if written > limit:
            raise UnsafeArchiveError(f"{_shown(name)} has more than {limit:,} bytes")
        target.write(block)
    return written


def _shown(name: str) -> str:
    return ascii(name[:80])
