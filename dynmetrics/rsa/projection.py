"""A seeded random projection of wide patterns, the same on every rank."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import describe, refuse


def check_seed(argument: str, value: Any) -> None:
    """Refuse anything but an integer that a generator takes."""
    number = isinstance(value, int) and not isinstance(value, bool)
    if not number or not -(2**63) <= value < 2**64:
        raise refuse(argument, "an integer of at most 64 bits", describe(value))


class SignProjection:
    """Adds features, dealt at random to `size` outputs, each with a random sign.

    Inner products of patterns, and so their distances, are kept on average; the error of a product
    of unit patterns is about 1 / sqrt(size). The draw depends on the seed and the number of
    features only. Patterns that are no wider than `size` stay as they are.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed
        self._draws: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}

    def __call__(self, patterns: Tensor) -> Tensor:
        """(..., D) to (..., size)."""
        features = patterns.shape[-1]
        if features <= self.size:
            return patterns
        order, signs = self._draw(features, patterns.device)
        signed = patterns[..., order] * signs
        lacking = -features % self.size
        padded = torch.nn.functional.pad(signed, (0, lacking))
        groups = padded.reshape(*patterns.shape[:-1], -1, self.size)
        total: Tensor = groups.sum(-2)
        return total

    def _draw(self, features: int, device: torch.device) -> tuple[Tensor, Tensor]:
        key = features, device
        if key not in self._draws:
            # The host's generator gives the same draw whatever the rank's device is.
            generator = torch.Generator().manual_seed(self.seed)
            order = torch.randperm(features, generator=generator)
            signs = torch.randint(2, (features,), generator=generator, dtype=torch.int8) * 2 - 1
            self._draws[key] = (
                order.to(device, non_blocking=True),
                signs.to(device, non_blocking=True),
            )
        return self._draws[key]


def deviations(patterns: Tensor, rounding: float) -> Tensor:
    """Patterns (..., D) less their own mean; zeros where nothing but `rounding` is left."""
    found = patterns - patterns.mean(-1, keepdim=True)
    largest = patterns.abs().amax(-1, keepdim=True)
    # Of what is about 1, for squares of very large or small numbers might not exist.
    length = torch.linalg.vector_norm(found / largest, dim=-1, keepdim=True)
    constant = (length <= rounding * patterns.shape[-1] ** 0.5) | (largest == 0)
    return found.masked_fill(constant, 0.0)
