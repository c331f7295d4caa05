"""`owttt sheet`: a contact sheet of every corruption at every severity."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from rich.console import Console
from torch import Tensor

from owttt._utils.files import write_bytes
from owttt._utils.progress import track
from owttt.cli.arguments import Commands, writable
from owttt.data import registry
from owttt.data.corruptions.clouds import CLOUD_CORRUPTIONS, corrupt_clouds
from owttt.data.corruptions.clouds.points import standing
from owttt.data.corruptions.images import CORRUPTIONS, corrupt
from owttt.data.dataset import Frame
from owttt.data.modalities.pictures import picture

LABEL_WIDTH, GAP, CLOUD_SIZE = 130, 2, 96


def add(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser("sheet", help="look at the corruptions", description=__doc__)
    parser.add_argument("--data", default="cifar10")
    parser.add_argument("--index", type=int, nargs="+", default=[0, 1], help="numbers of the images or clouds")
    parser.add_argument("--size", type=int, default=32, help="pixels the corruptions work on")
    parser.add_argument("--zoom", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("corruptions.png"))
    parser.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Draw and write."""
    path = writable(chosen.out)
    data = registry.load(chosen.data)
    if not all(0 <= index < len(data) for index in chosen.index):
        raise ValueError(f"{chosen.data} has images 0 … {len(data) - 1}, got {chosen.index}.")
    samples = data.batch(chosen.index, Frame(chosen.size))
    if samples.dim() == 3:
        samples = standing(samples, data.upright)
    content = io.BytesIO()
    sheet(samples, chosen.index, chosen.zoom).save(content, "PNG", optimize=True)
    write_bytes(path, content.getvalue())
    Console().print(f"written to {path}", highlight=False, markup=False, soft_wrap=True)


def sheet(samples: Tensor, numbers: list[int], zoom: int) -> Image.Image:
    """Return a row a corruption; for each image or cloud, clean and severities 1 to 5 side by side."""
    clouds = samples.dim() == 3
    corruption, names = (corrupt_clouds, CLOUD_CORRUPTIONS) if clouds else (corrupt, tuple(CORRUPTIONS))
    side = CLOUD_SIZE if clouds else samples.shape[-1] * zoom
    canvas = Image.new("RGB", (LABEL_WIDTH + 6 * len(samples) * (side + GAP), len(names) * (side + GAP)), "white")
    pen = ImageDraw.Draw(canvas)
    for row, name in enumerate(track(names, "corruptions")):
        top = row * (side + GAP)
        pen.text((4, top + side // 2 - 6), name.replace("_", " "), fill="black")
        versions = [samples, *(corruption(samples, name, severity, indices=numbers) for severity in range(1, 6))]
        for column, version in enumerate(torch.stack(versions, dim=1).flatten(0, 1)):
            pixels = picture(version, side) if clouds else version
            tile = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
            tile = tile.resize((side, side), Image.Resampling.NEAREST)
            canvas.paste(tile, (LABEL_WIDTH + column * (side + GAP), top))
    return canvas.quantize(64) if clouds else canvas
