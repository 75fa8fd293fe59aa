"""Sets of points, of equal or of different sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from dynmetrics.core.checks import check_tensor, describe, refuse, whole_numbers
from dynmetrics.prediction.inputs import widened


class PointSets(NamedTuple):
    """Point sets (B, N, D) padded to one size N >= 1, and how many points of each are real."""

    points: Tensor
    lengths: Tensor


def is_real(sets: PointSets) -> Tensor:
    """Which points (B, N) are no padding."""
    index = torch.arange(sets.points.shape[1], device=sets.points.device)
    return index < sets.lengths.unsqueeze(1)


def is_empty(sets: PointSets) -> Tensor:
    """Which sets (B,) have no point."""
    return sets.lengths < 1


def is_too_long(sets: PointSets) -> Tensor:
    """Which lengths (B,) exceed the points that there are."""
    return sets.lengths > sets.points.shape[1]


def checked_points(argument: str, value: Any, lengths: Any) -> PointSets:
    """Sets (B, N, D) with their lengths (B,), or a list of (N_i, D), checked."""
    if isinstance(value, (list, tuple)):
        return _ragged(argument, value, lengths)
    check_tensor(argument, value)
    if value.ndim != 3 or not value.shape[2]:
        raise refuse(argument, "points (B, N, D) or a list of (N_i, D)", describe(value))
    # One point of padding, that an empty set may be gathered from.
    points = widened(value if value.shape[1] else value.new_zeros(len(value), 1, value.shape[2]))
    if lengths is None:
        return PointSets(points, torch.full(value.shape[:1], value.shape[1], device=value.device))
    check_tensor(f"{argument}_lengths", lengths, value.device)
    if lengths.shape != value.shape[:1]:
        raise refuse(f"{argument}_lengths", f"the shape ({len(value)},)", describe(lengths))
    sets = PointSets(points, whole_numbers(f"{argument}_lengths", lengths))
    # Padding may hold anything, also NaN.
    return sets._replace(points=torch.where(is_real(sets).unsqueeze(2), points, 0.0))


def _ragged(argument: str, sets: Any, lengths: Any) -> PointSets:
    if lengths is not None:
        raise refuse(f"{argument}_lengths", "None beside a list", describe(lengths))
    for points in sets:
        check_tensor(argument, points, sets[0].device if isinstance(sets[0], Tensor) else None)
        if points.ndim != 2 or points.shape[1:] != sets[0].shape[1:] or not points.shape[1]:
            raise refuse(argument, "point sets (N_i, D) of one D", describe(points))
    if not sets:
        raise refuse(argument, "at least one point set in a list", "an empty list")
    counts = torch.tensor([len(points) for points in sets], device=sets[0].device)
    padded = pad_sequence([widened(points) for points in sets], batch_first=True)
    return checked_points(argument, padded, counts)
