"""From what a request carries to a batch for the model: images in three formats, or tensors in two; never pickle."""

from __future__ import annotations

import io
import json
import math
import struct
import warnings
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load as load_safetensors
from torch import Tensor

from owttt.models.source_model import SourceModel
from owttt.serve.limits import Limits

IMAGES: Final = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}
NPY: Final = "application/x-npy"
SAFETENSORS: Final = "application/x-safetensors"
TYPES: Final = (*IMAGES, NPY, SAFETENSORS)
_KINDS: Final = {"uint8", "float32", "float64", "float16"}


@final
class RefusedError(ValueError):
    """A request that cannot be served, and the HTTP status that says so."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def decoded(parts: Sequence[tuple[str, bytes]], model: SourceModel, limits: Limits) -> Tensor:
    """Return the samples of a request, as the model takes them.

    Args:
        parts: The content type and the bytes of every file of the request.
        model: Says how samples are framed.
        limits: What is too much.

    Raises:
        RefusedError: A part is of another type (415), too large (413), or not what it says it is (400, 422).
    """
    if not parts:
        raise RefusedError(400, "The request holds no image and no tensor.")
    if len(parts) > limits.images:
        raise RefusedError(413, f"At most {limits.images} samples per request, got {len(parts)}.")
    batches: list[Tensor] = []
    pixels = 0
    for kind, content in parts:
        batch, seen = _one(kind.split(";")[0].strip().lower(), content, model, limits)
        batches.append(batch)
        pixels += seen
        if pixels > limits.request_pixels:
            raise RefusedError(413, f"At most {limits.request_pixels:,} pixels per request.")
    number = sum(map(len, batches))
    if number > limits.images:
        raise RefusedError(413, f"At most {limits.images} samples per request, got {number}.")
    samples = torch.cat(batches)
    try:
        model.prepare(samples)
    except ValueError as error:
        raise RefusedError(422, f"The model does not take this. {error}") from error
    return samples


def _one(kind: str, content: bytes, model: SourceModel, limits: Limits) -> tuple[Tensor, int]:
    """Return the samples of a part, framed, and how many pixels it had."""
    if kind in IMAGES:
        if model.preprocessing.points is not None:
            raise RefusedError(415, "This model takes point clouds: send them as npy or safetensors.")
        image = _image(content, IMAGES[kind], model, limits)
        return model.preprocessing.frame(image[None]).float() / 255, image[0].numel()
    if kind in (NPY, SAFETENSORS):
        values = _npy(content, limits) if kind == NPY else _safetensors(content)
        return _framed(values, model, limits), values.numel() // 3
    raise RefusedError(415, f"Expected one of {', '.join(TYPES)}, got {kind[:60]!r}.")


def _check_size(width: int, height: int, model: SourceModel, limits: Limits) -> None:
    """Refuse images that are too large, also those so narrow that they are once their shorter side has its length."""
    side = model.preprocessing.resize or model.preprocessing.size
    shorter, longer = sorted((max(1, width), max(1, height)))
    if max(width * height, side * side * longer // shorter) > limits.image_pixels:
        raise RefusedError(
            413, f"At most {limits.image_pixels:,} pixels per image, as it is and framed, got {width} × {height}."
        )


def _image(content: bytes, kind: str, model: SourceModel, limits: Limits) -> Tensor:
    """Return an RGB image `(3, H, W)`; its size is looked at before its pixels are."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(content), formats=[kind])
            _check_size(opened.width, opened.height, model, limits)
            pixels = np.array(opened.convert("RGB"))
    except RefusedError:
        raise
    except Image.DecompressionBombWarning as error:
        raise RefusedError(413, f"At most {limits.image_pixels:,} pixels per image.") from error
    except Exception as error:  # Pillow's decoders raise whatever they like on damaged files
        raise RefusedError(422, f"This is no {kind} image that can be read.") from error
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def _npy(content: bytes, limits: Limits) -> Tensor:
    """Return an array; what its header promises is held against its length before anything is made of it."""
    try:
        file = io.BytesIO(content)
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        shape, _, kind = read(file, max_header_size=1000)
        promised = math.prod(shape) * kind.itemsize
    except (ValueError, KeyError, TypeError, EOFError, OverflowError, SyntaxError, MemoryError) as error:
        raise RefusedError(422, "This is no npy file that can be read.") from error
    if kind.name not in _KINDS:
        raise RefusedError(415, f"Expected an array of {', '.join(sorted(_KINDS))}, got {kind.name[:30]}.")
    if promised != len(content) - file.tell() or promised > limits.body_bytes or min(shape, default=1) < 0:
        raise RefusedError(422, "The npy file is not as long as its header says.")
    values = np.load(io.BytesIO(content), allow_pickle=False)
    return torch.from_numpy(values.astype(kind.newbyteorder("=")))


def _safetensors(content: bytes) -> Tensor:
    """Return the one tensor of a file."""
    try:
        length = struct.unpack("<Q", content[:8])[0]
        names = [name for name in json.loads(content[8 : 8 + length]) if name != "__metadata__"]
        tensors = load_safetensors(content)
    except Exception as error:  # whatever its reader makes of damaged files
        raise RefusedError(422, "This is no safetensors file that can be read.") from error
    if len(names) != 1:
        raise RefusedError(422, f"Expected one tensor in the file, got {len(names)}.")
    found: Tensor = tensors[names[0]]
    if str(found.dtype).removeprefix("torch.") not in _KINDS:
        raise RefusedError(415, f"Expected a tensor of {', '.join(sorted(_KINDS))}, got {found.dtype}.")
    return found


def _framed(values: Tensor, model: SourceModel, limits: Limits) -> Tensor:
    """Return samples of the model's size; a lone one is a batch of one."""
    points = model.preprocessing.points
    whole = 3 if points is not None else 4
    samples = values[None] if values.dim() == whole - 1 else values
    wrong = samples.dim() != whole or not samples.numel() or len(samples) > limits.images
    if points is None:
        wrong = wrong or samples.shape[1] != 3
    else:
        wrong = wrong or samples.shape[2] != 3 or not samples.is_floating_point()
    if wrong:
        shape = "(B, 3, H, W)" if points is None else "(B, P, 3), in float"
        raise RefusedError(422, f"Expected {shape}, at most {limits.images} of them, got {tuple(values.shape)}.")
    if points is None:
        _check_size(samples.shape[3], samples.shape[2], model, limits)
    scaled = samples.float() / 255 if samples.dtype == torch.uint8 else samples.float()
    if not bool(scaled.isfinite().all()):
        raise RefusedError(422, "The tensor holds NaN or infinity.")
    framed: Tensor = model.preprocessing.frame(scaled)
    return framed


def picture(sample: Tensor, side: int | None = None) -> bytes | None:
    """Return a sample as a PNG, no larger than `side`; None for what is no image."""
    if sample.dim() != 3:
        return None
    pixels = (sample.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    drawn: Any = Image.fromarray(pixels)
    if side is not None:
        drawn.thumbnail((side, side))
    file = io.BytesIO()
    drawn.save(file, "PNG")
    return file.getvalue()
