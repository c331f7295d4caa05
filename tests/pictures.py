"""Small made-up pictures to train and try models on: the class is the brightest channel."""

import numpy as np
import torch

from owttt.data.dataset import ArrayImages
from owttt.models import Preprocessing, SourceModel, cifar_resnet

CLASSES = ("red", "green", "blue")


def colored(count, seed=0, size=16):
    """Return images and labels."""
    random = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    pixels = random.integers(0, 120, (count, 3, size, size), dtype=np.uint8)
    pixels[np.arange(count), labels] += 100
    return pixels, labels


def dataset(count=96, seed=0):
    return ArrayImages(*colored(count, seed), CLASSES)


def model(seed=0):
    torch.manual_seed(seed)
    return SourceModel(cifar_resnet(8, 3, 4), Preprocessing(16), CLASSES)


def save_npz(path):
    (x_train, y_train), (x_test, y_test) = colored(96), colored(30, 1)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test, names=CLASSES)
