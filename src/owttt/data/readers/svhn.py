"""Street View House Numbers (Netzer et al., 2011), format 2: `train_32x32.mat` and `test_32x32.mat`."""

from __future__ import annotations

from pathlib import Path

from owttt._utils.optional import require
from owttt.data.dataset import ArrayImages, existing
from owttt.data.readers.sizes import believable, size_of


def svhn(root: Path, split: str) -> ArrayImages:
    """Open the cropped digits; the files call the digit 0 class 10."""
    path = existing(root / "svhn" / f"{split}_32x32.mat")
    scipy_io = require("scipy.io", "SVHN's mat files")
    try:
        for _, shape, _ in scipy_io.whosmat(path):
            believable(size_of(shape), path.stat().st_size, path)
        content = scipy_io.loadmat(path)
        images, labels = content["X"].transpose(3, 2, 0, 1), content["y"].ravel() % 10
    except Exception as error:  # scipy raises whatever a damaged file makes it stumble over
        raise ValueError(f"{path}: not a whole SVHN file ({error}).") from error
    return ArrayImages(images, labels, [str(digit) for digit in range(10)])
