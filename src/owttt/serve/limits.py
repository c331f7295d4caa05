"""How much a service takes: everything that a request could make large has a bound."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import final


@final
@dataclass(frozen=True)
class Limits:
    """The bounds of a service.

    body_bytes      bytes of a request
    image_pixels    pixels of one image, before it is decoded, and after it is brought to the model's size
    request_pixels  pixels of all images of a request
    images          images per request
    streams         streams of a service
    queued          samples that wait in a stream; a request beyond them is turned away (429)
    batch           samples of a micro-batch; what is learned from one batch is what an answer may have to wait for
    wait            seconds that a micro-batch waits for more samples
    timeout         seconds until a request that got no answer is given up (503)
    snapshot_every  batches between two snapshots
    snapshots       snapshots kept per stream
    rejects         rejected samples kept per stream, for triage; 0 keeps none
    doubtful        accepted samples are kept, too, that score within this share of the threshold below it; 0 keeps none
    thumbnails      pictures of the last rejects, on the dashboard
    """

    body_bytes: int = 32 * 2**20
    image_pixels: int = 16_000_000
    request_pixels: int = 64_000_000
    images: int = 256
    streams: int = 16
    queued: int = 1024
    batch: int = 64
    wait: float = 0.001
    timeout: float = 30.0
    snapshot_every: int = 50
    snapshots: int = 5
    rejects: int = 2000
    doubtful: float = 0.0
    thumbnails: int = 12

    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            least = 0 if part.name in ("wait", "rejects", "doubtful", "thumbnails") else 1
            if not value >= least:
                raise ValueError(f"{part.name} must be at least {least}, got {value}.")
