"""What a service costs: requests per second and latency against the bare forward pass, overload, kills, and nonsense.

    python benchmarks/service.py [--model cifar10-resnet26] [--seconds 8] [--kills 10] [--nonsense 2000]

Clients are threads of another process that send one image at a time. The bare forward pass is timed in the same run, in
batches as large as the service's. All on the loopback interface; every loop is bounded.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.console import Console

from owttt import models
from owttt._utils.files import write_json
from owttt._utils.progress import track
from owttt.client import Client, ServiceError

BATCH = 64


class Service:
    """A service in a process of its own."""

    def __init__(self, model: str, state: Path, *extra: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [
            "serve",
            "--model",
            model,
            "--state",
            str(state),
            "--port",
            str(self.port),
            "--batch",
            str(BATCH),
            *extra,
        ]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "owttt", *words],
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self.client = Client(f"http://127.0.0.1:{self.port}", timeout=60)
        for _ in range(600):
            try:
                self.client.streams()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("The service did not start.")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, politely or not."""
        self.process.send_signal(how)
        self.process.wait(60)

    def memory(self) -> float:
        """Return the MiB it holds."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return float(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def images(number: int) -> list[bytes]:
    """Return small pictures."""
    made = []
    for pixels in np.random.default_rng(0).integers(0, 256, (number, 32, 32, 3), dtype=np.uint8):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        made.append(file.getvalue())
    return made


def load(client: Client, clients: int, seconds: float) -> dict[str, float]:
    """Let so many clients ask one after the other; return requests per second and latencies."""
    pictures, latencies, refused = images(32), [], Counter[int]()
    end = time.perf_counter() + seconds

    def ask() -> None:
        while (start := time.perf_counter()) < end:
            try:
                client.predict("load", [random.choice(pictures)])
                latencies.append(time.perf_counter() - start)
            except ServiceError as error:
                refused[error.status] += 1
                time.sleep(0.02)

    started = time.perf_counter()
    together([ask] * clients)
    taken = time.perf_counter() - started
    ordered = sorted(latencies)
    return {
        "requests per second": len(ordered) / taken,
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[int(0.99 * (len(ordered) - 1))],
        "refused": sum(refused.values()),
    }


def together(works: list[Callable[[], None]]) -> None:
    """Run all at once."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def forward_seconds(model: str) -> dict[int, float]:
    """Return the seconds of a bare forward pass of one image, and of a whole batch, with one thread."""
    torch.set_num_threads(1)
    network = models.load(model)
    found = {}
    for number in (1, BATCH):
        x, times = torch.rand(number, 3, 32, 32), []
        for _ in range(12):
            start = time.perf_counter()
            with torch.no_grad():
                network(x)
            times.append(time.perf_counter() - start)
        found[number] = statistics.median(times[2:])
    return found


def kills(model: str, folder: Path, number: int) -> dict[str, Any]:
    """Kill the service in the middle of its work, again and again; count the batches that were lost."""
    lost: list[int] = []
    every, answered = 4, 0
    for _ in track(range(number + 1), "kills"):
        service = Service(model, folder / "kills", "--snapshot-every", str(every))
        resumed = int(service.client.stats("s")["generation"]) if service.client.streams() else 0
        lost.append(answered - resumed)
        batches = random.randint(1, 9)
        for _ in range(batches):
            service.client.predict("s", images(8))
        answered = resumed + batches
        service.stop(signal.SIGKILL)
    return {
        "kills": number,
        "most batches lost": max(lost),
        "snapshot every": every,
        "states that could not be resumed": sum(one > 9 + every for one in lost),
    }


def nonsense(client: Client, number: int) -> dict[str, Any]:
    """Send malformed requests; return what was answered, and whether anything changed."""
    client.predict("s", images(4))
    time.sleep(0.5)
    before = client.stats("s")
    rng, answers = random.Random(0), Counter[int]()
    kinds = [
        "image/png",
        "image/jpeg",
        "image/webp",
        "application/x-npy",
        "application/x-safetensors",
        "text/plain",
        "",
    ]
    start = images(1)[0]
    for _ in track(range(number), "nonsense"):
        cut = bytearray(start[: rng.randrange(len(start))])
        for _ in range(rng.randrange(4)):
            if cut:
                cut[rng.randrange(len(cut))] = rng.randrange(256)
        kind = rng.choice(kinds)
        path = rng.choice(["/v1/streams/s/predict", "/v1/streams/%2e%2e/predict", "/v1/streams/s/promote", "/v1/none"])
        try:
            client._ask("POST", path, bytes(cut), kind)
            answers[200] += 1
        except ServiceError as error:
            answers[error.status] += 1
    after = client.stats("s")
    same = all(before[name] == after[name] for name in ("generation", "samples", "threshold", "snapshots", "promoted"))
    return {"sent": number, "answers": dict(answers), "state unchanged": same}


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cifar10-resnet26")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--nonsense", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("out/service"))
    chosen = parser.parse_args()
    bare = forward_seconds(chosen.model)
    record: dict[str, Any] = {"model": chosen.model, "bare forward of one, ms": 1000 * bare[1]}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        service = Service(chosen.model, folder / "state")
        for clients in (1, 8, 64):
            found = load(service.client, clients, chosen.seconds)
            record[f"{clients} clients"] = {
                **found,
                "p50 / bare forward of one": found["p50"] / bare[1],
                "p99 / bare forward of one": found["p99"] / bare[1],
                "requests per second / bare images per second in batches": found["requests per second"]
                * bare[BATCH]
                / BATCH,
            }
        memory = service.memory()
        load(service.client, 8, 2 * chosen.seconds)
        record["MiB grown in a soak"] = service.memory() - memory
        record["nonsense"] = nonsense(service.client, chosen.nonsense)
        service.stop()
        shedding = Service(chosen.model, folder / "small", "--queued", "8")
        record["overload: 64 clients, 8 places"] = load(shedding.client, 64, chosen.seconds / 2)
        time.sleep(1)
        record["after it"] = load(shedding.client, 1, 2)
        shedding.stop()
        record["kills"] = kills(chosen.model, folder, chosen.kills)
    Console().print(json.dumps(record, indent=2))
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    write_json(chosen.out.with_suffix(".json"), record)


if __name__ == "__main__":
    main()
