"""Files that are damaged, forged or cut off: read whole, or refused by name, and never half."""

import gzip
import io
import json
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch

from owttt import SourceStats
from owttt._utils import tensors as tensor_files
from owttt._utils.files import read_json, write_json
from owttt.bench.records import read_run
from owttt.data.readers.mnist import read_idx
from owttt.data.readers.npz import npz
from owttt.models.networks import build
from owttt.models.package import WEIGHTS, read_model, write_model
from owttt.models.source_model import Preprocessing, SourceModel
from tests import official
from tests.attack.calls import batches, made, same, whole, world
from tests.attack.tally import Tally

REFUSALS = (ValueError, OSError)


def _adapter_state(path: Path):
    adapter = made("owttt")

    def read():
        before = whole(adapter)
        try:
            adapter.restore(path)
        except REFUSALS:
            if not same(before, whole(adapter)):
                raise AssertionError("refused, yet the state changed") from None
            raise
        return whole(adapter)

    return read


def _written(folder: Path):
    """Write a file of every kind; return for each its path, how it is read, and whether any change must be noticed."""
    adapter = made("owttt")
    adapter(batches()[0])
    adapter.save(folder / "state.safetensors")
    world().source.save(folder / "source.safetensors")
    model = SourceModel(build("resnet20", 3, 4), Preprocessing(16), ("a", "b", "c"), ("a", "b", "c"))
    write_model(folder / "model", model, "resnet20", 4)
    write_json(folder / "record.json", {"kind": "owttt run", "metrics": {"acc_s": 0.25, "text": "ä"}, "list": [1, 2.5]})
    generator = np.random.default_rng(0)
    pictures = generator.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)
    np.savez_compressed(folder / "packed.npz", x=pictures, y=np.arange(6))
    np.savez(folder / "plain.npz", x=pictures, y=np.arange(6))
    official.idx(folder / "digits-idx3-ubyte", pictures[..., 0], packed=True)
    return [
        (folder / "state.safetensors", _adapter_state(folder / "state.safetensors"), True),
        (folder / "source.safetensors", lambda: SourceStats.load(folder / "source.safetensors").state_dict(), True),
        (folder / "model" / WEIGHTS, lambda: read_model(folder / "model").state_dict(), True),
        (folder / "record.json", lambda: read_run(folder / "record.json"), True),
        (folder / "packed.npz", lambda: npz(folder / "packed.npz", "test").batch(range(6)), False),
        (folder / "plain.npz", lambda: npz(folder / "plain.npz", "test").batch(range(6)), False),
        (folder / "digits-idx3-ubyte.gz", lambda: read_idx(folder / "digits-idx3-ubyte").copy(), False),
    ]


def _mutated(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    kind, place = rng.choice(["flip", "cut", "zeros", "insert", "drop", "swap", "empty"]), rng.randrange(len(changed))
    if kind == "flip":
        changed[place] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del changed[place:]
    elif kind == "zeros":
        changed[place : place + 64] = bytes(len(changed[place : place + 64]))
    elif kind == "insert":
        changed[place:place] = rng.randbytes(rng.randint(1, 32))
    elif kind == "drop":
        del changed[place : place + rng.randint(1, 32)]
    elif kind == "swap":
        other = rng.randrange(len(changed))
        changed[place], changed[other] = changed[other], changed[place]
    else:
        changed.clear()
    return bytes(changed)


def _equal(a, b) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_equal(a[name], b[name]) for name in a)
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else np.array_equal(a, b)


def mutations(tally: Tally, rounds: int, rng: random.Random) -> None:
    """Change files at random: what is read is what was written, or the file is refused by its name."""
    with tempfile.TemporaryDirectory() as place:
        for path, read, sealed in _written(Path(place)):
            content, expected = path.read_bytes(), read()
            for _ in range(rounds):
                path.write_bytes(_mutated(content, rng))
                told = f"{path.name}"
                try:
                    found = read()
                except REFUSALS as error:
                    tally.check(path.name in str(error), f"{told}: the error does not name it: {error}")
                except Exception as error:
                    tally.check(False, f"{told}: {type(error).__name__}: {error}")
                else:
                    tally.check(not sealed or _equal(expected, found), f"{told}: read as something else")
            path.write_bytes(content)


def _forgeries(folder: Path):
    """Yield small files that ask for gigabytes, and how they are read."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (2**23, 32, 32)})
    with zipfile.ZipFile(folder / "shape.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.getvalue() + bytes(100))
        archive.writestr("y.npy", header.getvalue())
    yield lambda: npz(folder / "shape.npz", "test")
    forged = struct.pack(">HBB3I", 0, 8, 3, 2**31, 2, 2) + bytes(64)
    (folder / "forged-idx3-ubyte.gz").write_bytes(gzip.compress(forged))
    yield lambda: read_idx(folder / "forged-idx3-ubyte")
    (folder / "open-idx3-ubyte").write_bytes(forged)
    yield lambda: read_idx(folder / "open-idx3-ubyte")
    for width, size in ((10_000, 32), (4, 10**9)):
        description = {
            "kind": "source model",
            "network": "resnet20",
            "width": width,
            "classes": ["a", "b"],
            "names": ["a", "b"],
            "preprocessing": Preprocessing().describe() | {"size": size},
        }
        model = folder / f"model-{width}"
        model.mkdir()
        tensors = build("resnet20", 2, 4).state_dict() if size > 32 else {"fc.bias": torch.zeros(2)}
        tensor_files.write(model / WEIGHTS, tensors, description)
        yield lambda model=model: read_model(model)
    (folder / "deep.json").write_text("[" * 100_000)
    yield lambda: read_json(folder / "deep.json")
    (folder / "lie.safetensors").write_bytes(struct.pack("<Q", 2**40) + b"{}")
    yield lambda: SourceStats.load(folder / "lie.safetensors")


FORGERIES = """
import json, resource, sys
from pathlib import Path
from tests.attack.files import REFUSALS, _forgeries
place = Path(sys.argv[1])
reads = list(_forgeries(place))
limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + 2**30
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
for read in reads:
    try:
        read()
        print(json.dumps("a forged file was read"))
    except REFUSALS as error:
        print(json.dumps("" if str(place) in str(error) or "size" in str(error) else f"names no file: {error}"))
    except BaseException as error:
        print(json.dumps(f"{type(error).__name__}: {error}"))
"""


def forgeries(tally: Tally, rounds: int, rng: random.Random) -> None:
    """Files of a few hundred bytes that claim gigabytes are refused in a process that may take one more gigabyte."""
    del rounds, rng
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run([sys.executable, "-c", FORGERIES, place], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        said = json.loads(line)
        tally.check(not said, said)


WRITER = """
import sys
from pathlib import Path
from owttt._utils.files import write_json
folder, number = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
while True:
    number += 1
    write_json(folder / "record.json", {"number": number, "filling": "x" * 200_000})
"""


def kills(tally: Tally, rounds: int, rng: random.Random) -> None:
    """Kill a process that writes one file again and again: the file is whole, and never older than the last seen."""
    folder, last = Path(tempfile.mkdtemp()), 0
    try:
        for _ in range(rounds):
            words = [sys.executable, "-c", WRITER, str(folder), str(last)]
            with subprocess.Popen(words, stdout=subprocess.PIPE) as writer:
                assert writer.stdout is not None
                writer.stdout.readline()
                time.sleep(rng.uniform(0, 0.05))
                writer.send_signal(signal.SIGKILL)
            if not (folder / "record.json").exists():
                tally.check(last == 0, "the file is gone")
                continue
            try:
                number = json.loads((folder / "record.json").read_text())["number"]
                read_json(folder / "record.json")
            except ValueError as error:
                tally.check(False, str(error))
                continue
            tally.check(number >= last, "an older file came back")
            last = number
    finally:
        shutil.rmtree(folder)
