"""`owttt sheet`: a contact sheet of every corruption at every severity."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from rich.console import Console

from owttt._utils.files import write_bytes
from owttt._utils.progress import track
from owttt.cli.arguments import at_least_one, describe, writable
from owttt.data import registry
from owttt.data.dataset import Dataset
from owttt.data.modalities import Frame, Look

LABEL_WIDTH, GAP = 130, 2


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    describe(
        parser,
        "A contact sheet of every corruption at every severity.",
        "owttt sheet --data cifar10 --index 0 7",
        "owttt sheet --data solids --index 55 96",
    )
    parser.add_argument("--data", default="cifar10", help="a data set of images or clouds")
    parser.add_argument("--index", type=int, nargs="+", default=[0, 1], help="numbers of the images or clouds")
    parser.add_argument("--size", type=at_least_one, default=32, help="pixels the corruptions work on")
    parser.add_argument("--zoom", type=at_least_one, default=2, help="how much larger images are drawn")
    parser.add_argument("--out", type=Path, default=Path("corruptions.png"), help="the picture to write")
    parser.set_defaults(command=command)


def command(chosen: argparse.Namespace) -> None:
    """Draw and write."""
    path = writable(chosen.out)
    data = registry.load(chosen.data)
    if not all(0 <= index < len(data) for index in chosen.index):
        raise ValueError(f"{chosen.data} has {data.modality.name} 0 … {len(data) - 1}, got {chosen.index}.")
    content = io.BytesIO()
    sheet(data, chosen.index, Frame(chosen.size), chosen.zoom).save(content, "PNG", optimize=True)
    write_bytes(path, content.getvalue())
    Console().print(f"written to {path}", highlight=False, markup=False, soft_wrap=True)


def sheet(data: Dataset, numbers: list[int], frame: Frame, zoom: int) -> Image.Image:
    """Return a row per corruption; for each image or cloud, clean and severities 1 to 5 side by side."""
    modality = data.modality
    samples = data.batch(numbers, frame)
    side = modality.picture(samples[0]).shape[-1] * (1 if modality.corrupted_first else zoom)
    names = modality.corruptions
    canvas = Image.new("RGB", (LABEL_WIDTH + 6 * len(samples) * (side + GAP), len(names) * (side + GAP)), "white")
    pen = ImageDraw.Draw(canvas)
    for row, name in enumerate(track(names, "corruptions")):
        top = row * (side + GAP)
        pen.text((4, top + side // 2 - 6), name.replace("_", " "), fill="black")
        looks = [Look(name, severity) for severity in range(1, 6)]
        versions = [samples, *(modality.corrupt(samples, look, numbers, data.upright) for look in looks)]
        for column, version in enumerate(torch.stack(versions, dim=1).flatten(0, 1)):
            pixels = modality.picture(version, data.upright, side)
            tile = Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())
            canvas.paste(tile, (LABEL_WIDTH + column * (side + GAP), top))
    return canvas.quantize(64) if modality.corrupted_first else canvas
