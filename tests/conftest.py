"""One thread for everything: the tensors are tiny, and threads that wait for each other cost more than they compute."""

import os

import numpy as np
import pytest
import torch

from owttt.cli import main
from tests.pictures import save_npz

os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A folder with a small model (`model`), data of its classes (`known.npz`), and an unknown set (`unknown.npz`)."""
    folder = tmp_path_factory.mktemp("place")
    save_npz(folder / "known.npz")
    random = np.random.default_rng(5)
    np.savez(folder / "unknown.npz", x=random.integers(0, 256, (30, 16, 16), dtype=np.uint8), y=np.zeros(30, int))
    words = ["train", "--data", f"npz:{folder / 'known.npz'}", "--network", "resnet20", "--width", "4", "--size", "16"]
    words += ["--epochs", "3", "--batch-size", "16", "--lr", "0.1", "--test-number", "5"]
    assert main([*words, "--out", str(folder / "model")]) == 0
    return folder
