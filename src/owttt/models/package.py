"""A source model on disk: weights, source statistics and model card, in one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from owttt._utils import tensors as tensor_files
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


def read_card(path: Path) -> dict[str, Any]:
    """Read a model card."""
    card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return card
