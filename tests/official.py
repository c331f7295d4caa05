"""Small files in the exact formats that the data sets are published in."""

import gzip
import io
import struct
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed, size=(32, 32)):
    return np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)


def save_jpeg(path: Path, seed=0, size=(40, 50)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(seed, size)).save(path, "JPEG", quality=95)


def jpeg_bytes(seed, size=(40, 50)):
    buffer = io.BytesIO()
    Image.fromarray(picture(seed, size)).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def cifar(folder: Path, files, labels=1, rows=7, classes=10, names="batches.meta.txt"):
    """Rows of label bytes and 3072 pixel bytes; returns the pixels and the last label of each row."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    pixels, marks = [], []
    for name in files:
        mark = random.integers(0, classes, (rows, labels), dtype=np.uint8)
        pixel = random.integers(0, 256, (rows, 3072), dtype=np.uint8)
        (folder / name).write_bytes(np.concatenate([mark, pixel], axis=1).tobytes())
        pixels.append(pixel)
        marks.append(mark[:, -1])
    (folder / names).write_text("\n".join(f"class {n}" for n in range(classes)) + "\n\n")
    return np.concatenate(pixels).reshape(-1, 3, 32, 32), np.concatenate(marks)


def idx(path: Path, array, packed=False):
    content = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    if packed:
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)


def mnist(folder: Path, packed=False, count=6):
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = random.integers(0, 10, count, dtype=np.uint8)
    for prefix in ("train", "t10k"):
        idx(folder / f"{prefix}-images-idx3-ubyte", images, packed)
        idx(folder / f"{prefix}-labels-idx1-ubyte", labels, packed)
    return images, labels


def cifar_c(folder: Path, corruption="snow", count=4):
    folder.mkdir(parents=True)
    random = np.random.default_rng(2)
    images = random.integers(0, 256, (5 * count, 32, 32, 3), dtype=np.uint8)
    labels = np.tile(random.integers(0, 10, count, dtype=np.uint8), 5)
    np.save(folder / f"{corruption}.npy", images)
    np.save(folder / "labels.npy", labels)
    return images, labels


def tiny_imagenet(folder: Path, wnids=("n02124075", "n04067472", "n07749582")):
    for number, wnid in enumerate(wnids):
        for image in range(2):
            save_jpeg(folder / "train" / wnid / "images" / f"{wnid}_{image}.JPEG", 10 * number + image, (64, 64))
    rows = []
    for number, wnid in enumerate(reversed(wnids)):
        save_jpeg(folder / "val" / "images" / f"val_{number}.JPEG", 100 + number, (64, 64))
        rows.append(f"val_{number}.JPEG\t{wnid}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(rows) + "\n")
    (folder / "wnids.txt").write_text("\n".join(wnids) + "\n")
    words = ("Egyptian cat", "reel", "lemon")
    (folder / "words.txt").write_text("".join(f"{w}\t{n}\n" for w, n in zip(wnids, words, strict=False)))
