"""The few networks no library has: residual networks for 32-pixel images."""

from owttt.models.resnet import CifarResNet

__all__ = ["CifarResNet"]
