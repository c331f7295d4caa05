"""Files from the network: several addresses in order, resumed, verified, put in place whole or not at all."""

from __future__ import annotations

import hashlib
import http.client
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from owttt._utils.progress import byte_bar
from owttt.data.fetching.archives import UnsafeArchiveError, unpack

TIMEOUT: Final = 10.0
"""Seconds without an answer after which an address is given up."""

SLOWEST: Final = 1024
"""Bytes a second, over `TIMEOUT` seconds, below which it is given up as well."""

UNPACKED: Final = 10
"""How many times its size in the catalog a data set may take on disk; MNIST's bytes come down to a fifth."""

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
    megabytes: int = 1000
    """What all of them take, about; an answer of twice that is cut off."""

    def __str__(self) -> str:
        more = len(self.addresses) - 1
        return self.addresses[0] + (f" (and {more} mirror{'s' if more > 1 else ''})" if more else "")

    @property
    def unverified(self) -> tuple[str, ...]:
        """The files that no checksum is published for."""
        return tuple(name for name, checksum in self.files.items() if not checksum)

    def fetch(self, target: Path, work: Path) -> None:
        """Download all files into `work`, where a second try finds them, then unpack them below `target`."""
        limit = 2 * self.megabytes * 10**6
        archives = [
            download([f"{base}/{name}" for base in self.addresses], checksum, work, self.timeout, limit)
            for name, checksum in self.files.items()
        ]
        folder = target / self.folder
        folder.mkdir(parents=True, exist_ok=True)
        for archive in archives:
            try:
                unpack(archive, folder, UNPACKED * self.megabytes * 10**6)
            except UnsafeArchiveError:
                archive.unlink()
                raise


def download(urls: Sequence[str], checksum: str, work: Path, timeout: float = TIMEOUT, limit: int = 2**40) -> Path:
    """Return the file in `work`, verified; an OSError lists what was wrong with every address.

    A file without a published checksum comes over https only, in one piece, from a server that says how long it is.
    """
    work.mkdir(parents=True, exist_ok=True)
    finished = work / urls[0].rpartition("/")[2]
    if finished.exists() and _is(finished, checksum):
        return finished
    reasons = []
    for url in urls:
        try:
            return _obtain(url, work / f"{finished.name}.part", checksum, timeout, limit).replace(finished)
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


def _obtain(url: str, partial: Path, checksum: str, timeout: float, limit: int) -> Path:
    """Return a verified file from one address.

    A transfer that breaks off is taken up again as long as something comes; one that was taken up and does not verify
    begins anew, for what was there before may be another server's doing.
    """
    if not checksum:
        partial.unlink(missing_ok=True)
    problem: Exception = OSError("nothing came")
    for _ in range(ATTEMPTS):
        before = _size(partial)
        try:
            file = _transfer(url, partial, timeout, limit, verified=bool(checksum))
        except TimeoutError:
            raise
        except _TooLongError:
            raise
        except _ERRORS as error:
            if _size(partial) <= before or not checksum:
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


def _transfer(url: str, partial: Path, timeout: float, limit: int, *, verified: bool) -> Path:
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
        if resumed and not (have and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")):
            raise OSError("the server sent another part than was asked for")
        file = partial if resumed or not have else partial.with_suffix(".fresh")
        have = have if resumed else 0
        length = response.headers.get("Content-Length", "")
        total = have + int(length) if length.isdecimal() else None
        _acceptable(response, total, limit, verified=verified)
        try:
            with byte_bar(partial.stem, total, have) as advance, file.open("ab" if resumed else "wb") as out:
                received = _copy(response, out.write, advance, timeout, limit - have)
            if total is not None and have + received < total:
                raise OSError(f"truncated, {have + received} of {total} bytes came")
        except _TooLongError:
            file.unlink()
            raise
        except BaseException:
            if file != partial and _size(file) > _size(partial):
                file.replace(partial)
            raise
    return file


class _Hops(urllib.request.HTTPRedirectHandler):
    """Follows redirections, and remembers them."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def redirect_request(self, *args: Any, **named: Any) -> urllib.request.Request | None:
        """Follow one."""
        request = super().redirect_request(*args, **named)
        if request is not None:
            self.seen.append(request.full_url)
        return request


class _TooLongError(OSError):
    """An answer that is longer than the data set can be; asking again does not help."""


def _acceptable(response: Any, total: int | None, limit: int, *, verified: bool) -> None:
    """Raise unless an answer may be taken: of a length that can be, and from a source one can believe."""
    if total is not None and total > limit:
        raise _TooLongError(f"it has {total:,} bytes, and this data set at most {limit:,}")
    if verified:
        return
    if not all(hop.startswith("https:") for hop in (*getattr(response, "hops", ()), response.url)):
        raise OSError("no checksum is published for it, and it comes over plain http: not to be believed")
    if total is None:
        raise OSError("no checksum is published for it, and the server does not say how long it is")


def _open(request: urllib.request.Request, timeout: float) -> Any:
    """Open an address; the head of the answer has to be there in time, however slowly it drips."""
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    given_up = threading.Event()

    def ask() -> None:
        try:
            hops = _Hops()
            answer = urllib.request.build_opener(hops).open(request, timeout=timeout)
            answer.hops = (request.full_url, *hops.seen)
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
    response: http.client.HTTPResponse,
    write: Callable[[bytes], object],
    advance: Callable[[int], None],
    timeout: float,
    limit: int,
) -> int:
    received = mark = 0
    since = time.monotonic()
    while block := response.read1(_BLOCK):
        received += len(block)
        if received > limit:
            raise _TooLongError(f"more came than this data set can have ({limit:,} bytes)")
        write(block)
        advance(len(block))
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
