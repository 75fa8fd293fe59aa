"""What a metric accumulates, and how two accumulations become one.

A state never changes in place: accumulating gives a new tensor. That is why a snapshot is a handful
of references, a failed update can be undone for nothing, a loaded checkpoint is never edited, and a
state made inside `torch.inference_mode` does no harm outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dynmetrics.core.checks import describe, refuse

GROWS: Literal["grows"] = "grows"
"""An axis that is as long as the longest batch seen, aligned at index 0: a curve over T."""

BY_DATA: Literal["by data"] = "by data"
"""An axis whose length the first batch sets and every later one must match: classes, features."""

Size = int | Literal["grows", "by data"]
State = Tensor | list[Tensor]
Overflow = Literal["error", "ring", "reservoir"]
Fold = Callable[[Tensor, Tensor], Tensor]
"""Two accumulations as one: associative up to rounding, and a tensor of zeros is neutral."""


@dataclass(frozen=True)
class StateSpec:
    """The declaration of one state.

    `shape` is the state's shape, or for rows the shape of one row. Of rows at most `capacity` are
    kept on one rank (see `rows`). A folded state is combined by `fold`.
    """

    name: str
    reduction: Literal["sum", "max", "min", "fold", "rows"]
    shape: tuple[Size, ...]
    dtype: torch.dtype
    capacity: int | None = None
    fold: Fold | None = None
    overflow: Overflow = "error"

    @property
    def fill(self) -> float:
        """The neutral element of the reduction, which pads axes that grow."""
        if self.reduction in ("sum", "fold"):
            return 0
        bounds = torch.finfo(self.dtype) if self.dtype.is_floating_point else None
        if bounds is not None:
            return -torch.inf if self.reduction == "max" else torch.inf
        limits = torch.iinfo(self.dtype)
        return limits.min if self.reduction == "max" else limits.max

    def initial(self, device: torch.device) -> State:
        """The state before any data. Open axes have length 0."""
        if self.reduction == "rows":
            return []
        sizes = [size if isinstance(size, int) else 0 for size in self.shape]
        return torch.full(sizes, self.fill, dtype=self.dtype, device=device)


def common_shape(spec: StateSpec, shapes: Iterable[tuple[int, ...]], where: str) -> tuple[int, ...]:
    """The shape into which states of all `shapes` fit; `where` says whose they are, for the error.

    An axis of length 0 that the data has yet to set fits every length.
    """
    shapes = list(shapes)
    common: list[int] = []
    for axis, size in enumerate(spec.shape):
        lengths = {shape[axis] for shape in shapes if len(shape) == len(spec.shape)}
        if size == BY_DATA:
            lengths = lengths - {0} or {0}
        if size == GROWS and lengths:
            lengths = {max(lengths)}
        if len(lengths) != 1 or (isinstance(size, int) and lengths != {size}):
            raise refuse(where, f"{spec.name} of shape {spec.shape}", f"shapes {shapes}")
        common.append(lengths.pop())
    if any(len(shape) != len(spec.shape) for shape in shapes):
        raise refuse(where, f"{spec.name} of shape {spec.shape}", f"shapes {shapes}")
    return tuple(common)


def padded(spec: StateSpec, tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor` in the corner of a tensor of `shape` that is neutral elsewhere."""
    if tensor.shape == shape:
        return tensor
    result = torch.full(shape, spec.fill, dtype=tensor.dtype, device=tensor.device)
    result[tuple(slice(size) for size in tensor.shape)] = tensor
    return result


def combine_tensors(spec: StateSpec, state: State, other: State) -> State:
    """`state` and `other` as one, with shape and dtype checked; neither is changed."""
    reduction = spec.reduction
    if not (isinstance(state, Tensor) and isinstance(other, Tensor)):
        raise refuse(spec.name, "a tensor", describe(other))
    if other.device != state.device:
        raise refuse(spec.name, f"data on the metric's device {state.device}", describe(other))
    if spec.dtype.is_floating_point and other.dtype is torch.float64:
        # `set_dtype` may have asked for a state narrower than what a batch adds.
        other = other.to(spec.dtype)
    if other.shape != state.shape:
        shape = common_shape(spec, [tuple(state.shape), tuple(other.shape)], "update")
        state, other = padded(spec, state, shape), padded(spec, other, shape)
    if reduction == "sum":
        result = state + other
    elif spec.fold is not None:
        result = spec.fold(state, other)
    else:
        result = (torch.maximum if reduction == "max" else torch.minimum)(state, other)
    if result.dtype is not spec.dtype:
        raise refuse(spec.name, f"data that adds up in {spec.dtype}", describe(other))
    return result


def stacked_rows(spec: StateSpec, chunks: list[Tensor], device: torch.device) -> Tensor:
    """All rows of `chunks` as one tensor; no rows at all still have the right number of axes."""
    if chunks:
        return chunks[0] if len(chunks) == 1 else torch.cat(chunks)
    sizes = [size if isinstance(size, int) else 0 for size in spec.shape]
    return torch.empty([0, *sizes], dtype=spec.dtype, device=device)
