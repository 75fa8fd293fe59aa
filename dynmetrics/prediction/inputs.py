"""The inputs of prediction metrics, checked and brought to one form."""

from __future__ import annotations

import math
import sys
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse

_ORDINARY = (1e-6, 1e9)


class ImagePairs(NamedTuple):
    """Two batches of images (N, C, H, W), and the axes that N was made of."""

    preds: Tensor
    target: Tensor
    leading: tuple[int, ...]


def float_pair(preds: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Two tensors on one device, both in the wider of their types and in float32 at least."""
    check_tensor("preds", preds)
    check_tensor("target", target, preds.device)
    preds, target = widened(preds), widened(target)
    dtype = torch.promote_types(preds.dtype, target.dtype)
    return preds.to(dtype), target.to(dtype)


def widened(values: Tensor) -> Tensor:
    """`values` in float32, or in float64 if that is what it takes to hold them."""
    if values.dtype is torch.float64:
        return values
    wide = values.element_size() >= 4 and not values.is_floating_point()
    return values.to(torch.float64 if wide else torch.float32)


def check_same_shape(preds: Tensor, target: Tensor) -> None:
    """Refuse tensors that broadcasting would stretch."""
    if preds.shape != target.shape:
        raise refuse("target", f"the shape of preds, {tuple(preds.shape)}", describe(target))


def image_pairs(preds: Any, target: Any) -> ImagePairs:
    """Images (..., C, H, W) as ImagePairs."""
    preds, target = float_pair(preds, target)
    check_same_shape(preds, target)
    if preds.ndim < 3 or 0 in preds.shape[-3:]:
        raise refuse("preds", "images (..., C, H, W)", describe(preds))
    leading, image = tuple(preds.shape[:-3]), preds.shape[-3:]
    # An explicit length, for -1 is ambiguous where there are no images.
    n = math.prod(leading)
    return ImagePairs(preds.reshape(n, *image), target.reshape(n, *image), leading)


def with_room(data_range: float, preds: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The images in float64, if fourth powers of their range do not fit into float32."""
    if _ORDINARY[0] <= data_range <= _ORDINARY[1]:
        return preds, target
    return preds.to(torch.float64), target.to(torch.float64)


def image_mask(mask: Any, leading: tuple[int, ...], device: torch.device) -> Tensor:
    """Which images count, in the shape of their leading axes; without `mask` all of them."""
    if mask is None:
        return torch.ones(leading, dtype=torch.bool, device=device)
    return checked_mask(mask, leading, device)


def checked_mask(mask: Any, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """A boolean mask of `shape`, True where it counts."""
    check_tensor("mask", mask, device)
    if mask.dtype is not torch.bool or tuple(mask.shape) != shape:
        raise refuse("mask", f"a boolean tensor of shape {shape}", describe(mask))
    result: Tensor = mask
    return result


def over_steps(values: Tensor, by_step: bool) -> Tensor:
    """Values of images as (N, T), or as (N, 1) where time does not matter."""
    if not by_step:
        return values.reshape(-1, 1)
    if values.ndim < 1:
        raise refuse("preds", "images (..., T, C, H, W) for by_step=True", "a single image")
    return values.reshape(math.prod(values.shape[:-1]), values.shape[-1])


def chunk_size(device: torch.device, cached: int) -> int:
    """How many numbers to work on at a time: `cached` on a CPU, elsewhere what bounds memory."""
    return cached if device.type == "cpu" else 1 << 22


def check_positive(argument: str, value: Any) -> None:
    """Refuse anything but a finite number above 0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= sys.float_info.max:
        raise refuse(argument, "a finite number above 0", describe(value))
