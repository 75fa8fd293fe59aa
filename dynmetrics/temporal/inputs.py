"""The inputs of temporal classification, checked and brought to one form.

Scores become (B, T, C) in float32 or wider, labels (B, T) in int64. A masked label is -1, so that
one test, `labels >= 0`, says everywhere what counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse, whole_numbers
from dynmetrics.temporal.windows import first_label

LAYOUTS = ("BTC", "BCT", "TBC")


class Classification(NamedTuple):
    """Scores (B, T, C), or guessed classes (B, T), and the labels (B, T)."""

    preds: Tensor
    labels: Tensor


class Labels(NamedTuple):
    """Labels of every timestep and first labels of every sample, and what the mask lets count."""

    labels: Tensor
    """(B, T), int64; -1 where the mask is False."""
    first: Tensor
    """(B, T), int64; constant over T, and found without regard to the mask."""
    counted: Tensor
    """(B, T), bool."""


def temporal_inputs(
    preds: Any, target: Any, mask: Any = None, *, layout: str = "BTC"
) -> Classification:
    """`preds` with a time axis in `layout`, `target` and `mask` (B,) or (B, T)."""
    check_tensor("preds", preds)
    if preds.is_floating_point():
        scores = time_major(preds, layout)
        return Classification(wide(scores), _labels(target, mask, scores.shape[:2], preds.device))
    axes = layout.replace("C", "")
    if preds.ndim != 2:
        raise refuse("preds", f"class indices with the axes {axes}", describe(preds))
    guesses = preds if axes == "BT" else preds.T
    labels = _labels(target, mask, guesses.shape, preds.device)
    return Classification(guesses.to(torch.int64), labels)


def time_major(preds: Any, layout: str) -> Tensor:
    """Scores in the axes of `layout` as a view (B, T, C), in their own precision."""
    check_tensor("preds", preds)
    if not preds.is_floating_point() or preds.ndim != 3:
        raise refuse("preds", f"scores with the axes {layout}", describe(preds))
    scores: Tensor = preds.permute([layout.index(axis) for axis in "BTC"])
    if scores.shape[-1] == 0:
        raise refuse("preds", "at least one class", describe(scores))
    return scores


def label_inputs(target: Any, mask: Any, shape: torch.Size, device: torch.device) -> Labels:
    """The labels of predictions of `shape` (B, T), with the first label of every sample."""
    unmasked = _labels(target, None, shape, device)
    if mask is None:
        counted = torch.ones_like(unmasked, dtype=torch.bool)
        return Labels(unmasked, first_label(unmasked), counted)
    counted = _mask(mask, shape, device)
    return Labels(torch.where(counted, unmasked, -1), first_label(unmasked), counted)


def pooled_inputs(preds: Any, target: Any, mask: Any = None) -> Classification:
    """As `temporal_inputs` in "BTC"; without a time axis, (B, C) or (B,), T is 1."""
    check_tensor("preds", preds)
    if preds.ndim == (2 if preds.is_floating_point() else 1):
        preds = preds.unsqueeze(1)
        check_tensor("target", target)
        if target.ndim != 1:
            raise refuse("target", "labels (B,) for predictions without time", describe(target))
    return temporal_inputs(preds, target, mask)


def check_classes(classes: int, num_classes: int | None, largest_k: int) -> None:
    """Refuse scores whose class axis does not fit the options."""
    if num_classes is not None and classes != num_classes:
        raise refuse("preds", f"num_classes={num_classes} classes", f"{classes}")
    if largest_k > classes:
        raise refuse("top_k", f"at most the {classes} classes of preds", f"{largest_k}")


def wide(scores: Tensor) -> Tensor:
    """`scores` in float32 or wider."""
    return scores.float() if scores.element_size() < 4 else scores


def _labels(target: Any, mask: Any, shape: torch.Size, device: torch.device) -> Tensor:
    """Labels (B, T), -1 where `mask` is False."""
    labels = whole_numbers("target", _over_time("target", target, shape, device))
    if mask is None:
        return labels
    return torch.where(_mask(mask, shape, device), labels, -1)


def _mask(mask: Any, shape: torch.Size, device: torch.device) -> Tensor:
    counted = _over_time("mask", mask, shape, device)
    if counted.dtype is not torch.bool:
        raise refuse("mask", "a boolean tensor, True where it counts", describe(mask))
    return counted


def _over_time(argument: str, value: Any, shape: torch.Size, device: torch.device) -> Tensor:
    """`value` (B,) or (B, T) as (B, T)."""
    check_tensor(argument, value, device)
    if value.shape == shape[:1]:
        value = value.unsqueeze(1).expand(shape)
    if value.shape != shape:
        batch, steps = shape
        raise refuse(
            argument, f"the shape (B,) or (B, T) = ({batch}, {steps}) of preds", describe(value)
        )
    result: Tensor = value
    return result
