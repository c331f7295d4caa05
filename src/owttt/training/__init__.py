"""Training of source models."""

from owttt.training.loop import Epoch, Recipe, train
from owttt.training.source import Job, accuracy, batches, train_source

__all__ = ["Epoch", "Job", "Recipe", "accuracy", "batches", "train", "train_source"]
