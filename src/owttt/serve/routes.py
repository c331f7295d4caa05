"""What can be asked: predictions, what to do with a stream, rejects and classes made of them, health, the dashboard."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from concurrent.futures import Future
from functools import partial
from importlib.resources import files
from typing import Annotated, Any, Final, TypeVar

from anyio import to_thread
from fastapi import APIRouter, Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from owttt.serve.decoding import TYPES, RefusedError, decoded
from owttt.serve.limits import Limits
from owttt.serve.messages import Answer, Answers, Demotion, Promotion
from owttt.serve.meters import Meters
from owttt.serve.streams import Stream, Streams
from owttt.serve.worker import RestartingError
from owttt.triage.clusters import clustered

MULTIPART: Final = "multipart/form-data"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGES: Final = {
    "/": ("dashboard.html", "text/html"),
    "/dashboard.js": ("dashboard.js", "text/javascript"),
    "/dashboard.css": ("dashboard.css", "text/css"),
}
OPEN: Final = frozenset({"/livez", "/readyz", *PAGES})
"""What needs no token: health, and the shell of the dashboard, which holds no data."""
EVERY: Final = 1.0
"""Seconds between two events."""
SHOWN: Final = 12
"""Samples of a cluster that are shown."""
REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    401: {"description": "no token, or another one"},
    413: {"description": "too many bytes, pixels or samples"},
    415: {"description": "a content type that is not taken"},
    422: {"description": "not what it says it is, or not what the model takes"},
    429: {"description": "too many samples wait, or there are too many streams"},
    503: {"description": "no answer in time, or going down"},
}
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_FILES: Final = {"schema": {"type": "object", "properties": {"files": {"type": "array", "items": _BINARY["schema"]}}}}
_BODY: Final = {"required": True, "content": {MULTIPART: _FILES, **dict.fromkeys(TYPES, _BINARY)}}
T = TypeVar("T")
router = APIRouter()


def all_streams(request: Request) -> Streams:
    """Return the streams of the application."""
    found: Streams = request.app.state.streams
    return found


All = Annotated[Streams, Depends(all_streams)]


def one_stream(stream: str, streams: All) -> Stream:
    """Return a stream that is there."""
    return streams.find(stream)


One = Annotated[Stream, Depends(one_stream)]


@router.get("/livez", summary="Whether the process runs")
async def alive() -> dict[str, str]:
    """Answer."""
    return {"status": "alive"}


@router.get("/readyz", summary="Whether requests are taken")
async def ready(streams: All) -> Response:
    """Answer 200, or 503."""
    return JSONResponse({"status": "ready" if streams.ready else "not ready"}, 200 if streams.ready else 503)


@router.get("/metrics", summary="For Prometheus")
async def metrics(request: Request) -> Response:
    """Return all counters."""
    meters: Meters = request.app.state.meters
    return Response(generate_latest(meters.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/", include_in_schema=False)
@router.get("/dashboard.js", include_in_schema=False)
@router.get("/dashboard.css", include_in_schema=False)
async def page(request: Request) -> Response:
    """Return a file of the dashboard."""
    name, kind = PAGES[request.scope["path"]]
    content = (files("owttt.serve") / "pages" / name).read_bytes()
    return Response(content, media_type=kind, headers={"Content-Security-Policy": POLICY})


@router.post(
    "/v1/streams/{stream}/predict",
    summary="Answer images or tensors, and learn from them after",
    openapi_extra={"requestBody": _BODY},
    responses=REFUSALS,
)
async def predict(stream: str, request: Request, streams: All) -> Answers:
    """Answer every sample of a request: files of a form, or one image or tensor as the body."""
    parts = await asyncio.wait_for(_parts(request, streams.limits), streams.limits.timeout)
    decode = partial(decoded, parts, streams.model, streams.limits)
    samples = await to_thread.run_sync(decode, limiter=request.app.state.decoding)
    one = await run_in_threadpool(streams.get, stream)
    answers = await _waited(await run_in_threadpool(one.submit, samples), one)
    return Answers(stream=stream, answers=[Answer(**answer) for answer in answers])


async def _parts(request: Request, limits: Limits) -> list[tuple[str, bytes]]:
    """Return what a request carries: its files, or its body as one."""
    kind = request.headers.get("content-type", "")
    if kind.split(";")[0].strip().lower() != MULTIPART:
        return [(kind, await request.body())]
    try:
        async with request.form(max_files=limits.images, max_fields=1) as form:
            uploads = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
            return [(part.content_type or "", await part.read()) for part in uploads]
    except HTTPException as error:
        if "Too many files" in str(error.detail):
            raise RefusedError(413, f"At most {limits.images} samples per request.") from error
        raise


async def _waited(future: Future[T], stream: Stream) -> T:
    """Wait for a stream, but not for ever."""
    return await asyncio.wait_for(asyncio.wrap_future(future), stream.limits.timeout)


@router.get("/v1/streams", summary="The streams, and what can be said of each")
async def listing(streams: All) -> dict[str, Any]:
    """Return the statistics of all streams."""
    return {"streams": [await _numbers(streams.find(name)) for name in streams.names()]}


async def _numbers(stream: Stream, *, pictures: bool = False) -> dict[str, Any]:
    """Return what can be said of a stream, with its last rejects if wanted; if it is being started again, that."""
    try:
        numbers = await run_in_threadpool(stream.stats)
        last = await run_in_threadpool(stream.thumbnails) if pictures else []
    except (RestartingError, TimeoutError):
        return {"stream": stream.name, "restarting": True}
    shown = [{"png": base64.b64encode(png).decode(), "best": best, "score": score} for png, best, score in last]
    return {**numbers, "last": shown} if pictures else numbers


@router.get("/v1/streams/{stream}/stats", summary="What can be said of a stream")
async def stats(one: One) -> dict[str, Any]:
    """Return its statistics."""
    return await run_in_threadpool(one.stats)


@router.get(
    "/v1/streams/{stream}/events", summary="The same every second, as server-sent events, with the last rejects"
)
async def events(one: One, request: Request, streams: All) -> Response:
    """Send statistics until somebody leaves."""

    async def flow() -> AsyncIterator[str]:
        while streams.ready and not await request.is_disconnected():
            yield f"data: {json.dumps(await _numbers(one, pictures=True))}\n\n"
            await asyncio.sleep(EVERY)

    return StreamingResponse(flow(), media_type="text/event-stream")


async def _done(stream: Stream, verb: str, *arguments: Any) -> dict[str, Any]:
    """Do something with a stream when it is its turn."""
    try:
        return await _waited(await run_in_threadpool(stream.act, verb, *arguments), stream)
    except LookupError as error:
        raise RefusedError(404 if verb == "promote" else 409, str(error)) from error
    except ValueError as error:
        raise RefusedError(409, str(error)) from error


@router.post("/v1/streams/{stream}/reset", summary="Begin anew; snapshots and promoted classes stay")
async def reset(one: One) -> dict[str, Any]:
    """Put the adapter back to its beginning."""
    return await _done(one, "reset")


@router.post("/v1/streams/{stream}/freeze", summary="Answer without learning")
async def freeze(one: One) -> dict[str, Any]:
    """Stop learning."""
    return await _done(one, "freeze")


@router.post("/v1/streams/{stream}/thaw", summary="Learn again")
async def thaw(one: One) -> dict[str, Any]:
    """Go on learning."""
    return await _done(one, "thaw")


@router.post("/v1/streams/{stream}/snapshot", summary="Write the state now")
async def snapshot(one: One) -> dict[str, Any]:
    """Keep the present state."""
    return await _done(one, "snapshot")


@router.post("/v1/streams/{stream}/rollback", summary="Go back to the last snapshot before the present state")
async def rollback(one: One) -> dict[str, Any]:
    """Go back."""
    return await _done(one, "rollback")


@router.get("/v1/streams/{stream}/clusters", summary="Groups among the rejects")
async def clusters(one: One) -> dict[str, Any]:
    """Return the groups, the largest first, with some pictures of each."""
    rejects = await run_in_threadpool(one.rejects)
    if rejects is None:
        raise RefusedError(409, "This service keeps no rejects.")
    groups = await run_in_threadpool(clustered, rejects)
    return {
        "clusters": [
            {
                "number": number,
                "size": len(group),
                "ids": [reject.id for reject in group],
                "mean_score": sum(reject.score for reject in group) / len(group),
                "pictures": [base64.b64encode(reject.png).decode() for reject in group[:SHOWN] if reject.png],
            }
            for number, group in groups.items()
        ]
    }


@router.post("/v1/streams/{stream}/promote", summary="Make a class of rejects")
async def promote(one: One, wanted: Promotion) -> dict[str, Any]:
    """Let answers name a group of rejects from now on."""
    return await _done(one, "promote", wanted.ids, wanted.name)


@router.post("/v1/streams/{stream}/demote", summary="Take a promoted class back")
async def demote(one: One, wanted: Demotion) -> dict[str, Any]:
    """Forget a class that was promoted."""
    return await _done(one, "demote", wanted.name)
