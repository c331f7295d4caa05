"""`owttt serve`: a service that adapts while it serves."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from owttt import models, wrap
from owttt._utils.cluster import connected, ray_for
from owttt._utils.locks import alone
from owttt._utils.optional import require
from owttt.adapter import Adapter
from owttt.bench.running import source_of
from owttt.cli.arguments import describe, threshold, words
from owttt.data import registry
from owttt.methods import DEFAULT_METHOD, METHODS
from owttt.models.source_model import SourceModel
from owttt.serve.limits import Limits
from owttt.source import SourceStats

LEAST_TOKEN: Final = 16
_LIMITS_TOLD: Final = dict(re.findall(r"^ +(\w+) {2,}(.+)$", Limits.__doc__ or "", re.MULTILINE))


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    describe(
        parser,
        "Serve a model over HTTP: it answers, learns after, and says unknown. Every named stream has an adapter of its "
        "own, whose state is kept in --state and resumed from there. The dashboard is at /.",
        "owttt serve --model cifar10-resnet11 --state state",
        "owttt serve --model mymodel --state state --token-file token --host 0.0.0.0 --port 8000",
        "owttt serve --model my_package:make --source folder:photos/train --state state",
        "owttt serve --model cifar10-resnet11 --state /shared/state --engine ray --address 10.0.0.1:6379",
    )
    parser.add_argument("--model", required=True, help="a name, a folder, or package.module:function")
    parser.add_argument("--weights", help="a .safetensors or .pt file for a model that a function makes")
    parser.add_argument(
        "--source",
        help="a data set to fit SourceStats on if the model brings none, or a file of them, fitted on what "
        "owttt.models.load returns",
    )
    parser.add_argument(
        "--classes", type=words, help="names with commas, for a network that a function makes; the source's by default"
    )
    parser.add_argument("--method", default=DEFAULT_METHOD, help=", ".join(METHODS))
    parser.add_argument("--threshold", type=threshold, default="evidence", help="a name, a number, or low,high")
    parser.add_argument("--state", type=Path, required=True, help="folder for the state of all streams")
    parser.add_argument("--token-file", type=Path, help="file with the token that requests must bear")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve; others than this machine's need a token")
    parser.add_argument("--port", type=port, default=8000, help="number of the port; 0: any that is free")
    parser.add_argument(
        "--engine",
        choices=("local", "ray"),
        default="local",
        help="where streams run; ray: each in its own actor",
    )
    parser.add_argument("--address", metavar="HOST:PORT", help="of a Ray cluster; without one, Ray starts here")
    parser.add_argument("--cpus", type=float, help="cores that a stream takes on a Ray node (default: 1)")
    bounds = parser.add_argument_group("limits")
    for part in fields(Limits):
        kind = type(part.default)
        flag, told = f"--{part.name.replace('_', '-')}", _LIMITS_TOLD[part.name]
        bounds.add_argument(flag, type=kind, default=part.default, help=told)
    parser.set_defaults(command=serve)


def serve(chosen: argparse.Namespace) -> None:
    """Load the model, and serve until told to stop."""
    uvicorn = require("uvicorn", "A service", extra="serve")
    require("fastapi", "A service", extra="serve")
    from owttt.serve.app import make_app  # noqa: PLC0415  (needs the extra)
    from owttt.serve.streams import Streams  # noqa: PLC0415

    if chosen.engine == "local" and (chosen.address or chosen.cpus is not None):
        raise ValueError("--address and --cpus go with --engine ray.")
    token = token_of(chosen.token_file, chosen.host)
    classes = chosen.classes or classes_of(chosen.model, chosen.source)
    model = models.load(chosen.model, weights=chosen.weights, classes=classes)
    source = statistics_of(model, chosen.source)
    limits = Limits(**{part.name: getattr(chosen, part.name) for part in fields(Limits)})
    make = partial(wrap, model, chosen.method, source=source, threshold=chosen.threshold, classes=model.names)
    make()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    with alone(chosen.state), _bound(chosen.host, chosen.port) as door, _openers(chosen, make) as opener:
        streams: list[Streams] = []

        def opened(tell: Callable[[str, int, int, float], None]) -> Streams:
            streams.append(Streams(model, opener, chosen.state, limits, tell))
            return streams[0]

        app = make_app(opened, token)
        try:
            streams[0].resume()  # here, so that what cannot be resumed is told in one line; the app finds them open
        except BaseException:
            streams[0].close()
            raise
        _run(uvicorn, app, streams[0], door, chosen)


@contextmanager
def _openers(chosen: argparse.Namespace, make: Callable[[], Adapter]) -> Iterator[Any]:
    """Give what opens streams: in this process, or on a cluster for as long as the service runs."""
    from owttt.serve.cluster import on_cluster  # noqa: PLC0415  (needs the extra)
    from owttt.serve.streams import here  # noqa: PLC0415

    if chosen.engine == "local":
        yield here(make)
        return
    ray = ray_for(chosen.address)
    with connected(ray, chosen.address):
        yield on_cluster(ray, make, cpus=1 if chosen.cpus is None else chosen.cpus)


def port(text: str) -> int:
    """Read the number of a port."""
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, got {text!r}")
    return int(text)


def _bound(host: str, number: int) -> socket.socket:
    """Return a socket that listens, or raise: before anything is said to be served."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, number), family=family, backlog=2048)
    except OSError as error:
        raise OSError(f"{host}:{number} cannot be served: {error.strerror or error}. Try another --port.") from error


def _run(uvicorn: Any, app: Any, streams: Any, door: socket.socket, chosen: argparse.Namespace) -> None:
    """Serve until told to stop."""
    Console(stderr=True).print(
        f"http://{chosen.host}:{door.getsockname()[1]} serves {chosen.model}, state in {chosen.state}", markup=False
    )
    config = uvicorn.Config(
        app, log_level="warning", timeout_keep_alive=10, limit_concurrency=512,
        timeout_graceful_shutdown=int(streams.limits.timeout) + 1, server_header=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    shutdown = server.shutdown

    async def drained(*arguments: Any, **named: Any) -> None:
        """Close the doors first: whoever is told every second what happens would else never leave."""
        streams.close_doors()
        await shutdown(*arguments, **named)

    server.shutdown = drained
    server.run(sockets=[door])


def token_of(path: Path | None, host: str) -> str | None:
    """Return the token; without one the service is for this machine only, and says so."""
    if path is None:
        if not _is_loopback(host):
            raise ValueError(
                f"{host} can be reached from elsewhere: give a token with --token-file, or serve 127.0.0.1."
            )
        Console(stderr=True).print(
            "NO TOKEN: everybody on this machine may use and steer this service.", style="bold red"
        )
        return None
    token = path.read_text(encoding="utf-8").strip()
    if len(token) < LEAST_TOKEN or not token.isascii() or any(map(str.isspace, token)):
        raise ValueError(f"{path}: a token has at least {LEAST_TOKEN} characters of ASCII, without spaces.")
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def classes_of(model: str, source: str | None) -> tuple[str, ...] | None:
    """Return the classes of a network that a function makes: the source's, or numbers; None if it brings its own."""
    if source is None or not models.is_function(model):
        return None
    if source.endswith(".safetensors"):
        return tuple(map(str, range(SourceStats.load(Path(source)).num_classes)))
    return tuple(registry.load(source, "train").classes)


def statistics_of(model: SourceModel, source: str | None) -> SourceStats:
    """Return the source statistics: the model's own, those of a file, or fitted on a data set."""
    if source is not None and source.endswith(".safetensors"):
        return SourceStats.load(Path(source))
    return source_of(model, source)
