"""Source models by name: shipped, fetched on demand, in a folder, or made by somebody's function."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import safetensors.torch
import torch
from torch import Tensor, nn

from owttt._utils import plugins
from owttt._utils.suggest import suggest
from owttt.data.catalog import catalog
from owttt.models.imagenet import CONVERSIONS, load_imagenet
from owttt.models.package import CARD, read_card, read_model
from owttt.models.source_model import Preprocessing, SourceModel

WEIGHTS: Final = Path(__file__).with_name("weights")


def shipped() -> list[str]:
    """Return the names of the models inside the package."""
    return sorted(path.parent.name for path in WEIGHTS.glob("*/model.safetensors"))


def names() -> list[str]:
    """Return all names that `load` knows."""
    return [*shipped(), *CONVERSIONS, *plugins.registered("models")]


def is_function(name: str) -> bool:
    """Whether a model is made by somebody's function."""
    return plugins.is_path(name) or name in plugins.registered("models")


def load(name: str | Path, *, weights: str | Path | None = None, classes: Sequence[str] | None = None) -> SourceModel:
    """Load a source model in evaluation mode.

    Args:
        name: One of `names()`; the folder that `owttt train` wrote; or `package.module:function`, a function without
            arguments that returns a `SourceModel` or any network. A network gets float images in 0 … 1 and does its
            own normalization; it may say the side of its images in pixels as `input_size` (32 if it does not).
        weights: A `.safetensors` or `.pt` file with the state dict of the network that a function returns.
        classes: Names of the classes of a bare network, in the order of its outputs.

    Returns:
        A model that takes RGB images, uint8 or float in 0 … 1; its preprocessing is inside.

    Raises:
        ValueError: There is no such model, or its weights do not fit.
    """
    text = str(name)
    if is_function(text):
        return _from_function(text, weights, classes)
    if weights is not None:
        raise ValueError(f"weights go with package.module:function; {text!r} brings its own.")
    if text in shipped():
        return read_model(WEIGHTS / text)
    if text in CONVERSIONS:
        return load_imagenet(text)
    if Path(name).is_dir():
        return read_model(Path(name))
    raise ValueError(
        f"No model {text!r}. {suggest(text, names())} A folder that `owttt train` wrote is one too, and "
        "package.module:function makes one of yours."
    )


def preset_of(name: str) -> str | None:
    """Return the paper's preset that a model belongs to: what its card says, or that of the data it was trained on."""
    if name in CONVERSIONS:
        return CONVERSIONS[name].preset
    card_path = (WEIGHTS / name if name in shipped() else Path(name)) / CARD
    if plugins.is_path(name) or not card_path.exists():
        return None
    card = read_card(card_path)
    entry = catalog().get(card.get("trained_on", ""))
    preset: str | None = card.get("preset")
    return preset or (entry.preset if entry else None)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dict; a pickle is read with `weights_only`, so that it can hold tensors and nothing else."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; weights are a .safetensors or .pt file.")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        tensors: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what a damaged or hostile pickle raises has no common base
        raise ValueError(f"{path}: not a readable file of weights ({type(error).__name__}: {error}).") from error
    tensors = tensors.get("state_dict", tensors) if isinstance(tensors, dict) else tensors
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ValueError(f"{path}: expected a state dict, names and tensors; got {type(tensors).__name__}.")
    return tensors


def _from_function(name: str, weights: str | Path | None, classes: Sequence[str] | None) -> SourceModel:
    function = plugins.find(name, "models")
    made: Any = function() if callable(function) and not isinstance(function, nn.Module) else function
    if not isinstance(made, nn.Module):
        raise ValueError(f"{name}: expected a function that returns a torch.nn.Module, got {type(made).__name__}.")
    network = made.network if isinstance(made, SourceModel) else made
    if weights is not None:
        _put(read_weights(Path(weights)), network, str(weights))
    if isinstance(made, SourceModel):
        return made.eval()
    if classes is None:
        raise ValueError(
            f"{name}: a bare network does not know its classes; name them (classes=), or return a SourceModel."
        )
    size = getattr(made, "input_size", 32)
    return SourceModel(made, Preprocessing(size, None, (0.0,) * 3, (1.0,) * 3), classes).eval()


def _put(tensors: dict[str, Tensor], network: nn.Module, origin: str) -> None:
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(
            f"{origin}: these weights do not fit the network. {str(error).splitlines()[-1].strip()}"
        ) from error
