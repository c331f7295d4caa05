"""The 15 corruptions of ModelNet40-C (Sun et al., 2022) as batched operations on clouds of any number of points.

    corrupt_clouds(clouds, "lidar", severity=5, indices=range(100, 164))

Every cloud has randomness of its own, from the seed, the corruption, the severity and the cloud's number. A cloud keeps
its number of points, because a network adapts to inputs of one shape: where the published corruption takes points away,
others of those that are left come twice; where it adds some, as many of all are drawn as there were. Published numbers
of points, which are for clouds of 1,024, are taken as shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torch import Tensor

from owttt.data.corruptions.clouds import density, noise, shape, view
from owttt.data.corruptions.clouds.points import in_unit_ball, standing
from owttt.data.corruptions.randomness import Randomness

CLOUD_CONSTANTS: Final[dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]]] = {
    "occlusion": (view.occlusion, (1, 2, 3, 4, 5)),
    "lidar": (view.lidar, (1, 2, 3, 4, 5)),
    "density_inc": (density.density_inc, (1, 2, 3, 4, 5)),
    "density": (density.density, (1, 2, 3, 4, 5)),
    "cutout": (density.cutout, (2, 3, 5, 7, 10)),
    "uniform": (noise.uniform, (0.01, 0.02, 0.03, 0.04, 0.05)),
    "gaussian": (noise.gaussian, (0.01, 0.015, 0.02, 0.025, 0.03)),
    "impulse": (noise.impulse, (1 / 30, 1 / 25, 1 / 20, 1 / 15, 1 / 10)),
    "upsampling": (noise.upsampling, (1 / 5, 1 / 4, 1 / 3, 1 / 2, 1)),
    "background": (noise.background, (1 / 45, 1 / 40, 1 / 35, 1 / 30, 1 / 20)),
    "rotation": (shape.rotation, (2.5, 5, 7.5, 10, 15)),
    "shear": (shape.shear, (0.05, 0.1, 0.15, 0.2, 0.25)),
    "distortion": (shape.free_form, (0.1, 0.2, 0.3, 0.4, 0.5)),
    "distortion_rbf": (shape.radial, (0.025, 0.05, 0.075, 0.1, 0.125)),
    "distortion_rbf_inv": (shape.inverse_radial, (0.025, 0.05, 0.075, 0.1, 0.125)),
}
"""Name, as the published files are called → operation, and its constant for the severities 1 to 5.

For occlusion and lidar it is no strength but the fifth of the circle around the shape that it is seen from.
"""
CLOUD_CORRUPTIONS: Final = tuple(CLOUD_CONSTANTS)


def corrupt_clouds(
    clouds: Tensor,
    corruption: str,
    severity: int,
    *,
    indices: Sequence[int] | Tensor,
    upright: int = 2,
    seed: int = 0,
) -> Tensor:
    """Corrupt clouds `(B, P, 3)` and return as many, of as many points, in float32.

    They are brought into the unit ball first, which the constants are for. `indices` are the numbers of the clouds in
    their data set, which their randomness belongs to; `upright` is the axis that is vertical.
    """
    if corruption not in CLOUD_CONSTANTS:
        raise ValueError(f"No corruption {corruption!r} of clouds; choose one of {list(CLOUD_CONSTANTS)}.")
    if severity not in range(1, 6):
        raise ValueError(f"severity must be 1 to 5, got {severity}.")
    if clouds.dim() != 3 or clouds.shape[2] != 3 or not clouds.is_floating_point():
        raise ValueError(f"Expected clouds (B, P, 3) in float, got {clouds.dtype} {tuple(clouds.shape)}.")
    if upright not in range(3):
        raise ValueError(f"upright must be the axis 0, 1 or 2, got {upright}.")
    if len(indices) != len(clouds):
        raise ValueError(f"Expected one index for each of {len(clouds)} clouds, got {len(indices)}.")
    if not len(clouds):
        return clouds.float()
    operation, constants = CLOUD_CONSTANTS[corruption]
    random = Randomness(f"{seed}/{corruption}/{severity}", [int(index) for index in indices])
    corrupted = operation(standing(in_unit_ball(clouds.float()), upright), constants[severity - 1], random)
    return corrupted.roll(upright - 2, dims=2)


__all__ = ["CLOUD_CONSTANTS", "CLOUD_CORRUPTIONS", "corrupt_clouds"]
