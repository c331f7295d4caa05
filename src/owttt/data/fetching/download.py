"""Files from the network: several addresses in order, resumed, verified, put in place whole or not at all."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import queue
import shutil
import tarfile
import threading
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from owttt._utils.progress import byte_bar

TIMEOUT: Final = 10.0
"""Seconds without an answer after which an address is given up."""

SLOWEST: Final = 1024
"""Bytes a second, over `TIMEOUT` seconds, below which it is given up as well."""

ATTEMPTS: Final = 3
"""How often a transfer that breaks off is taken up again before the next address is tried."""

_BLOCK: Final = 2**18
_ERRORS: Final = (http.client.HTTPException, OSError)
"""What a bad address raises; urllib's own errors and time-outs are OSErrors."""


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
        more = len(self.addresses) - 1
        return self.addresses[0] + (f" (and {more} mirror{'s' if more > 1 else ''})" if more else "")

    def fetch(self, target: Path, work: Path) -> None:
        """Download all files into `work`, where a second try finds them, then unpack them below `target`."""
        archives = [
            download([f"{base}/{name}" for base in self.addresses], checksum, work, self.timeout)
            for name, checksum in self.files.items()
        ]
        folder = target / self.folder
        folder.mkdir(parents=True, exist_ok=True)
        for archive in archives:
            _place(archive, folder)


def download(urls: Sequence[str], checksum: str, work: Path, timeout: float = TIMEOUT) -> Path:
    """Return the verified file in `work`; an OSError lists what was wrong with every address."""
    work.mkdir(parents=True, exist_ok=True)
    finished = work / urls[0].rpartition("/")[2]
    if finished.exists() and _is(finished, checksum):
        return finished
    reasons = []
    for url in urls:
        try:
            return _obtain(url, work / f"{finished.name}.part", checksum, timeout).replace(finished)
        except _ERRORS as error:
            reasons.append(f"{url}: {_reason(error, timeout)}")
    raise OSError("\n  ".join(reasons))


def md5(path: Path) -> str:
    """Return a file's MD5, the checksum that data sets are published with."""
    total = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def _is(file: Path, checksum: str) -> bool:
    return not checksum or md5(file) == checksum


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _obtain(url: str, partial: Path, checksum: str, timeout: float) -> Path:
    """Return a verified file from one address.

    A transfer that breaks off is taken up again as long as something comes; one that was taken up and does not verify
    begins anew, for what was there before may be another server's doing.
    """
    problem: Exception = OSError("nothing came")
    for _ in range(ATTEMPTS):
        before = _size(partial)
        try:
            file = _transfer(url, partial, timeout)
        except TimeoutError:
            raise
        except _ERRORS as error:
            if _size(partial) <= before:
                raise
            problem = error
            continue
        if _is(file, checksum):
            return file
        problem = OSError(f"tampered with or damaged, its MD5 is {md5(file)} and should be {checksum}")
        file.unlink()
        if file != partial or not before:
            break
    raise problem


def _transfer(url: str, partial: Path, timeout: float) -> Path:
    """Bring `partial` to its full length from where it ends, and return it.

    A server that cannot resume sends all of it to a file of its own, so that a wrong answer spoils nothing.
    """
    have = _size(partial)
    headers = {"User-Agent": "owttt", "Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = _open(urllib.request.Request(url, headers=headers), timeout)
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return partial
        raise
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
            raise OSError("the server sent another part than was asked for")
        file = partial if resumed or not have else partial.with_suffix(".fresh")
        have = have if resumed else 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdigit() else None
        try:
            with byte_bar(partial.stem, total, have) as advance, file.open("ab" if resumed else "wb") as out:
                received = _copy(response, out.write, advance, timeout)
            if total is not None and have + received < total:
                raise OSError(f"truncated, {have + received} of {total} bytes came")
        except BaseException:
            if file != partial and _size(file) > _size(partial):
                file.replace(partial)
            raise
    return file


def _open(request: urllib.request.Request, timeout: float) -> Any:
    """Open an address; the head of the answer has to be there in time, however slowly it drips."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    given_up = threading.Event()

    def ask() -> None:
        try:
            answer = urllib.request.urlopen(request, timeout=timeout)
        except Exception as error:
            answer = error
        answers.put(answer)
        if given_up.is_set():
            _close(answer)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=2 * timeout)
    except queue.Empty:
        given_up.set()
        raise TimeoutError from None
    if not isinstance(answer, Exception):
        return answer
    _close(answer)
    if isinstance(answer, urllib.error.URLError) and isinstance(answer.reason, TimeoutError):
        raise TimeoutError from answer
    raise answer


def _close(answer: Any) -> None:
    if hasattr(answer, "close"):
        answer.close()


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
    if isinstance(cause, TimeoutError) and str(cause) in ("", "timed out"):
        return f"no answer within {timeout:g} s"
    return str(cause) or type(cause).__name__


def _place(file: Path, folder: Path) -> None:
    """Unpack an archive into the folder, or copy a plain file there; members that would leave it are refused."""
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
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        file.unlink()
        raise OSError(f"{file.name} cannot be unpacked ({error})") from error
    except OSError as error:
        if isinstance(error, gzip.BadGzipFile):
            file.unlink()
        raise OSError(f"{file.name} cannot be unpacked ({error})") from error
