"""A client of `owttt serve`: standard library only.

client = owttt.client.Client("http://127.0.0.1:8000", token="…")
client.predict("camera-1", ["photo.jpg"])[0]["label"]
"""

from __future__ import annotations

import io
import json
import mimetypes
import secrets
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

_TYPES: Final = {"image/png", "image/jpeg", "image/webp"}
mimetypes.add_type("image/webp", ".webp")


class ServiceError(RuntimeError):
    """What a service answered instead of what was asked for; `status` is the HTTP status, `retry_after` in seconds."""

    def __init__(self, status: int, detail: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.retry_after = retry_after


@final
class Client:
    """Talks to one service. `token` is what the service was given; `timeout` is in seconds."""

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0) -> None:
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"Expected an address like http://127.0.0.1:8000, got {url!r}.")
        self.url = url.rstrip("/")
        self.token = token
        self.timeout = timeout

    def predict(self, stream: str, images: Sequence[str | Path | bytes] | NDArray[Any]) -> list[dict[str, Any]]:
        """Return the answers for images (files or their contents), or for an array `(B, 3, H, W)` or `(B, P, 3)`."""
        if isinstance(images, str | Path | bytes):
            raise TypeError(f"Expected a list of images, got one of them; put it in a list: [{images!r:.40}].")
        if isinstance(images, np.ndarray):
            file = io.BytesIO()
            np.save(file, images, allow_pickle=False)
            body, kind = file.getvalue(), "application/x-npy"
        else:
            body, kind = _form([_part(image) for image in images])
        answers: list[dict[str, Any]] = self._ask("POST", self._path(stream, "predict"), body, kind)["answers"]
        return answers

    def stats(self, stream: str) -> dict[str, Any]:
        """Return what can be said of a stream."""
        return self._ask("GET", self._path(stream, "stats"))

    def streams(self) -> list[dict[str, Any]]:
        """Return the same of all streams."""
        found: list[dict[str, Any]] = self._ask("GET", "/v1/streams")["streams"]
        return found

    def clusters(self, stream: str) -> list[dict[str, Any]]:
        """Return the groups among a stream's rejects."""
        found: list[dict[str, Any]] = self._ask("GET", self._path(stream, "clusters"))["clusters"]
        return found

    def promote(self, stream: str, ids: Sequence[int], name: str) -> None:
        """Make a class of rejects."""
        self._post(stream, "promote", {"ids": list(ids), "name": name})

    def demote(self, stream: str, name: str) -> None:
        """Take a promoted class back."""
        self._post(stream, "demote", {"name": name})

    def reset(self, stream: str) -> None:
        """Begin anew."""
        self._post(stream, "reset")

    def freeze(self, stream: str) -> None:
        """Answer without learning."""
        self._post(stream, "freeze")

    def thaw(self, stream: str) -> None:
        """Learn again."""
        self._post(stream, "thaw")

    def snapshot(self, stream: str) -> int:
        """Write the state now; return how many batches it has learned from."""
        return int(self._post(stream, "snapshot")["generation"])

    def rollback(self, stream: str) -> int:
        """Go back to the snapshot before; return how many batches it had learned from."""
        return int(self._post(stream, "rollback")["generation"])

    def _post(self, stream: str, what: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        body = None if content is None else json.dumps(content).encode()
        return self._ask("POST", self._path(stream, what), body or b"", "application/json")

    @staticmethod
    def _path(stream: str, what: str) -> str:
        return f"/v1/streams/{urllib.parse.quote(stream, safe='')}/{what}"

    def _ask(self, method: str, path: str, body: bytes | None = None, kind: str | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if kind is not None:
            headers["Content-Type"] = kind
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                content: dict[str, Any] = json.load(answer)
                return content
        except urllib.error.HTTPError as error:
            raise _told(error) from error


def _told(error: urllib.error.HTTPError) -> ServiceError:
    text = error.read().decode("utf-8", "replace")
    try:
        detail = str(json.loads(text)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = text[:200]
    wait = error.headers.get("Retry-After")
    return ServiceError(error.code, detail, float(wait) if wait else None)


def _part(image: str | Path | bytes) -> tuple[str, bytes]:
    """Return the type and the content of an image."""
    if isinstance(image, bytes):
        return _type_of(image), image
    kind = mimetypes.guess_type(str(image))[0]
    content = Path(image).read_bytes()
    return (kind if kind in _TYPES else _type_of(content)), content


def _type_of(content: bytes) -> str:
    if content.startswith(b"\x89PNG"):
        return "image/png"
    return "image/webp" if content[8:12] == b"WEBP" else "image/jpeg"


def _form(parts: Sequence[tuple[str, bytes]]) -> tuple[bytes, str]:
    """Return files as a form, and its content type."""
    boundary = secrets.token_hex(16)
    pieces = []
    for number, (kind, content) in enumerate(parts):
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="{number}"\r\n'
        pieces += [f"{head}Content-Type: {kind}\r\n\r\n".encode(), content, b"\r\n"]
    return b"".join([*pieces, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"
