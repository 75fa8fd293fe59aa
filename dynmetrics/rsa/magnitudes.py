"""Numbers near the ends of the float64 range, brought to where their squares exist.

Everything is multiplied by powers of two, which rounds nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

_FAR = 2.0**200


def outlying_exponent(largest: Tensor) -> Tensor | None:
    """The binary exponents of magnitudes, 0 for ordinary ones; None if all are ordinary.

    Squares of ordinary magnitudes, and of what is left of them after a subtraction, are exact to
    rounding however many are added up. Zeros and what is not finite are ordinary.
    """
    if not torch.compiler.is_compiling() and _are_ordinary(largest):
        return None
    far = (largest >= _FAR) & largest.isfinite() | (largest <= 1 / _FAR) & (largest > 0)
    return torch.where(far, torch.frexp(largest).exponent, 0)


def _are_ordinary(largest: Tensor) -> bool:
    """Whether all lie in the middle of the range: nearly always, and found out by little."""
    return bool(((largest < _FAR) & (largest > 1 / _FAR)).all())


def times_power_of_two(values: Tensor, exponent: Tensor) -> Tensor:
    """`values` (float64) times 2^`exponent`, also where that factor alone has no float64."""
    half = exponent.div(2, rounding_mode="floor")
    return values * _power(half) * _power(exponent - half)


def _power(exponent: Tensor) -> Tensor:
    return torch.pow(2.0, exponent.to(torch.float64))


def ordinary(values: Tensor, each_row: bool = True) -> Tensor:
    """Values (..., N) of ordinary magnitude: all times one power of two, or each row by its own.

    For what does not depend on a common scale: correlations and cosines.
    """
    if not values.numel():
        return values
    magnitude = values.abs().nan_to_num(0.0, 0.0, 0.0)
    largest = magnitude.amax(-1, keepdim=True) if each_row else magnitude.amax()
    exponent = outlying_exponent(largest)
    return values if exponent is None else times_power_of_two(values, -exponent)
