"""The whole shape turned, sheared and bent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from owttt.data.corruptions.clouds.points import in_cube
from owttt.data.corruptions.randomness import Randomness

CONTROL: Final = 5
"""Control points of a deformation along each side of the cube."""
RADIUS: Final = 0.5
"""Of the radial basis functions."""


def rotation(clouds: Tensor, degrees: float, random: Randomness) -> Tensor:
    """Turn about the three axes, one after the other, by ±U(degrees − 2.5, degrees + 2.5) each."""
    angles = _signed(random, degrees - 2.5, degrees + 2.5, 3) * math.pi / 180
    for axis in range(3):
        clouds = clouds @ turn(angles[:, axis], axis)
    return in_cube(clouds)


def turn(angles: Tensor, axis: int) -> Tensor:
    """Return matrices `(B, 3, 3)` that turn about an axis."""
    cos, sin = angles.cos(), angles.sin()
    first, second = ((1, 2), (2, 0), (0, 1))[axis]
    matrix = torch.eye(3, dtype=angles.dtype).repeat(len(angles), 1, 1)
    matrix[:, first, first], matrix[:, first, second] = cos, -sin
    matrix[:, second, first], matrix[:, second, second] = sin, cos
    return matrix


def shear(clouds: Tensor, strength: float, random: Randomness) -> Tensor:
    """Shear x and y by each other and both by the height z, each by ±U(strength − 0.05, strength + 0.05).

    x ← x + d·z + f·y and y ← y + b·x + e·z; heights stay. (Published for clouds whose y is upright.)
    """
    b, d, e, f = _signed(random, strength - 0.05, strength + 0.05, 4).unbind(dim=1)
    zero, one = torch.zeros_like(b), torch.ones_like(b)
    rows = ((one, b, zero), (f, one, zero), (d, e, one))
    matrix = torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)
    return in_cube(clouds @ matrix)


def free_form(clouds: Tensor, reach: float, random: Randomness) -> Tensor:
    """Bend by a lattice of 5³ control points (Sederberg & Parry, 1986), moved by U(−reach, reach) of the cube's side.

    x ← x + 2 Σ_ijk B_i(u) B_j(v) B_k(w) d_ijk, with Bernstein polynomials B of degree 4 and (u, v, w) = (x + 1)/2.
    """
    moved = 2 * random.uniform(-reach, reach, CONTROL, CONTROL, CONTROL, 3)
    u = ((clouds + 1) / 2)[..., None]
    order = torch.arange(CONTROL)
    ways = torch.tensor([math.comb(CONTROL - 1, number) for number in range(CONTROL)])
    weights = ways * u**order * (1 - u) ** (CONTROL - 1 - order)
    bent = torch.einsum("bpi,bpj,bpk,bijkc->bpc", *weights.unbind(dim=2), moved)
    return in_cube(clouds + bent)


def radial(clouds: Tensor, length: float, random: Randomness) -> Tensor:
    """Bend by radial basis functions √(r² + R²) through 5³ control points, each moved by a length in some direction."""
    return _radial(clouds, length, random, lambda squared: (squared + RADIUS**2).sqrt())


def inverse_radial(clouds: Tensor, length: float, random: Randomness) -> Tensor:
    """Bend by radial basis functions 1/√(r² + R²)."""
    return _radial(clouds, length, random, lambda squared: (squared + RADIUS**2).rsqrt())


def _radial(clouds: Tensor, length: float, random: Randomness, basis: Callable[[Tensor], Tensor]) -> Tensor:
    """Interpolate the displacement of the control points, with a linear part (Buhmann, 2003)."""
    side = torch.linspace(-1, 1, CONTROL, dtype=torch.double)
    control = torch.cartesian_prod(side, side, side)
    count = len(control)
    alpha, gamma = random.uniform(-math.pi, math.pi, 2, count).double().unbind(dim=1)
    moved = length * torch.stack((alpha.cos() * gamma.sin(), alpha.sin() * gamma.sin(), gamma.cos()), dim=2)
    linear = torch.cat((torch.ones(count, 1, dtype=torch.double), control), dim=1)
    system = torch.zeros(count + 4, count + 4, dtype=torch.double)
    system[:count, :count] = basis(torch.cdist(control, control).square())
    system[:count, count:], system[count:, :count] = linear, linear.T
    known = torch.cat((moved, moved.new_zeros(len(clouds), 4, 3)), dim=1)
    weights = torch.linalg.solve(system, known)
    x = clouds.double()
    terms = torch.cat((basis(torch.cdist(x, control).square()), torch.ones_like(x[..., :1]), x), dim=2)
    return in_cube(clouds + (terms @ weights).float())


def _signed(random: Randomness, low: float, high: float, number: int) -> Tensor:
    return random.uniform(low, high, number) * (2 * random.integers(0, 2, number) - 1)
