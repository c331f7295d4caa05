"""Files from the network: several addresses in order, resumed, verified, put in place whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from owttt.progress import byte_bar

TIMEOUT: Final = 10.0
"""Seconds without an answer after which an address is given up."""

SLOWEST: Final = 1024
"""Bytes a second, over `TIMEOUT` seconds, below which it is given up as well."""

ATTEMPTS: Final = 3
"""How often a transfer that breaks off is taken up again before the next address is tried."""

_BLOCK: Final = 2**18
_ERRORS: Final = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, OSError)


@final
@dataclass(frozen=True)
class Web:
    """A data set as files on the network: the same names at several addresses, MD5 sums where they are published."""

    addresses: tuple[str, ...]
    files: Mapping[str, str]
    folder: str = ""
    """Where below the data root the files go, or what they unpack to."""
    timeout: float = TIMEOUT

    def __str__(self) -> str:
        return self.addresses[0]

    def fetch(self, target: Path, work: Path) -> None:
        """Download and unpack all files below `target`; downloads wait in `work`, where a second try goes on."""
        folder = target / self.folder
        folder.mkdir(parents=True, exist_ok=True)
        for name, checksum in self.files.items():
            _place(download([f"{base}/{name}" for base in self.addresses], checksum, work, self.timeout), folder)


def download(urls: Sequence[str], checksum: str, work: Path, timeout: float = TIMEOUT) -> Path:
    """Return the verified file in `work`; an OSError lists what was wrong with every address."""
    work.mkdir(parents=True, exist_ok=True)
    finished = work / urls[0].rpartition("/")[2]
    partial = finished.with_name(f"{finished.name}.part")
    if finished.exists():
        return finished
    reasons = []
    for url in urls:
        problem = _transfer_patiently(url, partial, timeout)
        found = md5(partial) if checksum and not problem else ""
        if not problem and found == checksum:
            return partial.rename(finished)
        if not problem:
            partial.unlink()
            problem = f"tampered with or damaged, its MD5 is {found} and should be {checksum}"
        reasons.append(f"{url}: {problem}")
    raise OSError("\n  ".join(reasons))


def md5(path: Path) -> str:
    """Return a file's MD5, the checksum that data sets are published with."""
    total = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def _transfer_patiently(url: str, partial: Path, timeout: float) -> str | None:
    """Transfer, and go on where it broke off as long as something came; return what was wrong in the end."""
    problem = None
    for _ in range(ATTEMPTS):
        before = partial.stat().st_size if partial.exists() else 0
        try:
            _transfer(url, partial, timeout)
            return None
        except _ERRORS as error:
            problem = _reason(error, timeout)
        if not partial.exists() or partial.stat().st_size <= before:
            break
    return problem


def _transfer(url: str, partial: Path, timeout: float) -> None:
    """Bring `partial` to its full length, from where it ends; servers that cannot resume start anew."""
    have = partial.stat().st_size if partial.exists() else 0
    headers = {"User-Agent": "owttt", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return
        raise
    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with byte_bar(partial.stem, total, have) as advance, partial.open("ab" if have else "wb") as file:
            received = _copy(response, file.write, advance, timeout)
    if total is not None and have + received < total:
        raise OSError(f"truncated, {have + received} of {total} bytes came")


def _copy(
    response: http.client.HTTPResponse, write: Callable[[bytes], object], advance: Callable[[int], None], timeout: float
) -> int:
    received = mark = 0
    since = time.monotonic()
    while block := response.read1(_BLOCK):
        write(block)
        advance(len(block))
        received += len(block)
        if time.monotonic() - since > timeout:
            if received - mark < SLOWEST * timeout:
                raise TimeoutError(f"less than {SLOWEST} bytes a second")
            since, mark = time.monotonic(), received
    return received


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"the server says {error.code} {error.reason}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return f"no answer within {timeout:g} s" if str(cause) in ("", "timed out") else str(cause)
    return str(cause) or type(cause).__name__


def _place(file: Path, folder: Path) -> None:
    """Unpack an archive into the folder, or move a plain file there; members that would leave it are refused."""
    try:
        if file.name.endswith(".zip"):
            with zipfile.ZipFile(file) as zipped:
                zipped.extractall(folder)
        elif file.name.endswith((".tar", ".tar.gz", ".tgz")):
            with tarfile.open(file) as tarred:
                tarred.extractall(folder, filter="data")
        elif file.suffix == ".gz":
            with gzip.open(file) as packed, (folder / file.stem).open("wb") as plain:
                shutil.copyfileobj(packed, plain)
        else:
            shutil.copy(file, folder)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, gzip.BadGzipFile) as error:
        file.unlink()
        raise OSError(f"{file.name} cannot be unpacked ({error})") from error
    file.unlink()
