"""A source model on disk: weights, source statistics and model card, in one folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from owttt._utils import tensors as tensor_files
from owttt._utils.files import read_json
from owttt.models.networks import build
from owttt.models.source_model import Preprocessing, SourceModel
from owttt.source import SourceStats

KIND: Final = "source model"
WEIGHTS, SOURCE, CARD = "model.safetensors", "source.safetensors", "card.json"


def write_model(folder: Path, model: SourceModel, network: str, width: int | None) -> None:
    """Write the weights with all that is needed to make the network again."""
    folder.mkdir(parents=True, exist_ok=True)
    description = {
        "kind": KIND,
        "network": network,
        "width": width,
        "classes": list(model.classes),
        "names": list(model.names),
        "preprocessing": model.preprocessing.describe(),
    }
    tensor_files.write(folder / WEIGHTS, model.network.state_dict(), description)


def read_model(folder: Path) -> SourceModel:
    """Read a folder that `write_model` wrote, with its statistics and card if they are there."""
    tensors, description = tensor_files.read(folder / WEIGHTS, KIND)
    _check_fit(description, tensors, folder / WEIGHTS)
    network = build(description["network"], len(description["classes"]), description["width"])
    network.load_state_dict(tensors)
    model = SourceModel(
        network,
        Preprocessing.parse(description["preprocessing"]),
        tuple(description["classes"]),
        tuple(description["names"]),
    )
    if (folder / SOURCE).exists():
        model.attach(SourceStats.load(folder / SOURCE))
    if (folder / CARD).exists():
        model.card = read_card(folder / CARD)
    return model.eval()


def _check_fit(description: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise a ValueError unless a network as described has just these tensors; it is drawn up without memory."""
    try:
        with torch.device("meta"):
            plan = build(description["network"], len(description["classes"]), description["width"]).state_dict()
    except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(f"{path}: no network can be made of its description ({error}).") from error
    wrong = sorted(
        name
        for name in plan.keys() | tensors.keys()
        if name not in plan or name not in tensors or plan[name].shape != tensors[name].shape
    )
    if wrong:
        raise ValueError(
            f"{path}: {len(wrong)} tensors are missing, unknown or of another shape than {description['network']!r} of "
            f"width {description['width']} has: {wrong[:5]}."
        )


def read_card(path: Path) -> dict[str, Any]:
    """Read a model card; one that is damaged is a ValueError."""
    return read_json(path)
