"""A Ray cluster: found, reached, or started on this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from owttt._utils.optional import require

LOOPBACK: Final = "127.0.0.1"
_LOCAL: Final = (f"{LOOPBACK}:", "localhost:")
PATIENCE: Final = 5.0
"""Seconds after which an address that does not answer is given up."""


@contextmanager
def connected(ray: Any, address: str | None) -> Iterator[bool]:
    """Be connected to a cluster: the one this program already uses, the one at the address, or one made here.

    Yields whether the connection is ours, and closed here.
    """
    if ray.is_initialized():
        yield False
        return
    if address is not None:
        _reach(address)
    ray.init(address=address, log_to_driver=False, logging_level="ERROR", **_own(address))
    try:
        yield True
    finally:
        ray.shutdown()


def ray_for(address: str | None) -> Any:
    """Import Ray; told first to stay on the loopback interface if its cluster is there, or it would look elsewhere."""
    if address is None or address.startswith(_LOCAL):
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    return require("ray", "clusters", extra="ray")


def _own(address: str | None) -> dict[str, Any]:
    """Return what Ray has to know of this machine: how to start here, or that a cluster is on this machine only."""
    if address is None:
        return {"num_cpus": os.cpu_count(), "include_dashboard": False, "_node_ip_address": LOOPBACK}
    return {"_node_ip_address": LOOPBACK} if address.startswith(_LOCAL) else {}


def _reach(address: str) -> None:
    """Raise a ConnectionError unless somebody listens at `host:port`; Ray itself would wait for minutes."""
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"--address is host:port of a Ray cluster, got {address!r}.")
    try:
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()
    except OSError as error:
        raise ConnectionError(
            f"No Ray cluster answers at {address} ({error}). `ray start --head` starts one and tells its address."
        ) from error
