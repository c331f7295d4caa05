"""The application: a token, limits on bodies, errors that tell nothing of the inside, and the routes behind them."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, final

from anyio import CapacityLimiter
from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from owttt import __version__
from owttt.serve.decoding import RefusedError
from owttt.serve.limits import Limits
from owttt.serve.meters import Meters
from owttt.serve.routes import OPEN, router
from owttt.serve.streams import Streams
from owttt.serve.worker import ClosedError, OverloadedError, RestartingError

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
DECODERS: Final = 2
"""Requests that are decoded at the same time."""
_log = logging.getLogger("owttt.serve")


def make_app(make: Callable[[Callable[[str, int, int, float], None]], Streams], token: str | None = None) -> FastAPI:
    """Return the application; `make` gives the streams, told what to call for every request that was answered."""
    meters = Meters()
    streams = make(meters.tell)

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        app.state.decoding = CapacityLimiter(DECODERS)
        resumed = await run_in_threadpool(streams.resume)
        for name, batch in resumed.items():
            _log.warning("stream %s: %s", name, "begins" if batch is None else f"resumed after batch {batch}")
        yield
        await run_in_threadpool(streams.close)

    app = FastAPI(title="OWTTT", version=__version__, lifespan=life, docs_url=None, redoc_url=None)
    app.state.streams, app.state.meters = streams, meters
    app.include_router(router)
    _errors(app)
    app.add_middleware(BodyLimit, limits=streams.limits)
    _token(app, meters, token)
    return app


@final
class BodyLimit:
    """Refuses bodies that are too large, or that do not arrive in time, before anybody holds them."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count what comes in."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.limits.body_bytes:
            await self._too_large()(scope, receive, send)
            return
        seen, whole = 0, False

        async def counted() -> Message:
            nonlocal seen, whole
            message = await (receive() if whole else asyncio.wait_for(receive(), self.limits.timeout))
            seen += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if seen > self.limits.body_bytes:
                raise RefusedError(413, f"At most {self.limits.body_bytes:,} bytes per request.")
            return message

        await self.app(scope, counted, send)

    def _too_large(self) -> Response:
        return problem(413, f"At most {self.limits.body_bytes:,} bytes per request.")


def problem(status: int, detail: str, **headers: str) -> Response:
    """Return an error as JSON."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return JSONResponse({"detail": detail}, status, named or None)


def _token(app: FastAPI, meters: Meters, token: str | None) -> None:
    """Ask for the token, count what is refused, and let nobody keep or reinterpret an answer."""
    expected = f"Bearer {token}".encode()

    @app.middleware("http")
    async def guarded(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        given = request.headers.get("authorization", "").encode("utf-8", "replace")
        if token is None and _is_foreign(request):
            response = problem(403, "Without a token only pages and programs of this machine are served.")
        elif token is None or request.scope["path"] in OPEN or hmac.compare_digest(given, expected):
            response = await call(request)
        else:
            response = problem(401, "This needs the header Authorization: Bearer <token>.", WWW_Authenticate="Bearer")
        if response.status_code >= 400:
            meters.refused.labels(str(response.status_code)).inc()
        response.headers.update({"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"})
        return response


def _is_foreign(request: Request) -> bool:
    """Whether a request was made by a page of another site, or for another host than this machine."""
    host = request.headers.get("host", "")
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    origin = request.headers.get("origin")
    return name not in LOOPBACK or origin not in (None, f"http://{host}")


def _errors(app: FastAPI) -> None:
    """Turn errors into answers: what was wrong with the request, and nothing about the inside."""

    @app.exception_handler(RefusedError)
    async def refused(_: Request, error: RefusedError) -> Response:
        return problem(error.status, error.detail, **({"Retry_After": "1"} if error.status == 429 else {}))

    @app.exception_handler(OverloadedError)
    async def overloaded(_: Request, __: OverloadedError) -> Response:
        return problem(429, "Too many samples wait in this stream; try again.", Retry_After="1")

    @app.exception_handler(ClosedError)
    async def closed(_: Request, __: ClosedError) -> Response:
        return problem(503, "The service is going down.", Retry_After="10")

    @app.exception_handler(RestartingError)
    async def restarting(_: Request, __: RestartingError) -> Response:
        return problem(503, "The stream is being started again from its last snapshot; try again.", Retry_After="5")

    @app.exception_handler(TimeoutError)
    async def late(_: Request, __: TimeoutError) -> Response:
        return problem(503, "There was no answer in time; try again.", Retry_After="5")

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> Response:
        return problem(error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
        return problem(422, told[:1000])

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        _log.error("a request failed", exc_info=error)
        return problem(500, "Something went wrong here; the log of the service has it.")
