"""When the stimulus is on and when labels hold: presentation, reaction time, residual steps.

All functions work on the last axis, time, and keep the axes before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_positive_int, check_tensor, describe, refuse

Pattern = str | Sequence[int] | Sequence[bool] | Tensor


def presentation_mask(pattern: Pattern, T: int) -> Tensor:  # noqa: N803
    """True where the stimulus is on: a short pattern stretched over T timesteps.

    Timestep t shows entry `t * P // T` of the P entries, so "10" is a stimulus for the first half
    and a blank for the second.

    Args:
        pattern: "1" for on and "0" for off, as text, numbers, or a tensor (..., P).
        T: number of timesteps.

    Returns:
        bool, (..., T).

    Raises:
        ValueError: for a pattern that is empty or holds anything else, and for T below 1.

    References:
        DynVision's data presentation pattern.

    Example:
        >>> presentation_mask("1011", 8).int()
        tensor([1, 1, 0, 0, 1, 1, 1, 1], dtype=torch.int32)
    """
    on = _on_or_off(pattern)
    check_positive_int("T", T)
    steps = torch.arange(T, device=on.device)
    return on[..., steps * on.shape[-1] // T]


def reaction_mask(pattern: Pattern, reaction_time: float, dt: float) -> Tensor:
    """True inside the reaction window of every stimulus: the timesteps to leave out.

    A network needs time to answer. From every onset (a stimulus that is on at t = 0 has its onset
    there) `ceil(reaction_time / dt)` timesteps are masked, also beyond the stimulus' end. A
    reaction time of 0 or less masks nothing.

    Args:
        pattern: whether the stimulus is on at every timestep, (..., T), as `presentation_mask`
            returns it; or text or numbers of T entries.
        reaction_time: in the unit of `dt`.
        dt: the time between two timesteps.

    Returns:
        bool, (..., T).

    Raises:
        ValueError: for a pattern as in `presentation_mask`, for a reaction time that is not finite
            and for a `dt` that is not positive.

    References:
        DynVision's loss reaction time.

    Example:
        >>> reaction_mask("01101110", reaction_time=4.0, dt=2.0).int()
        tensor([0, 1, 1, 0, 1, 1, 0, 0], dtype=torch.int32)
    """
    on = _on_or_off(pattern)
    if not math.isfinite(reaction_time):
        raise refuse("reaction_time", "a finite number", describe(reaction_time))
    if not (math.isfinite(dt) and dt > 0):
        raise refuse("dt", "a positive number", describe(dt))
    # Floating division may land just above a whole number: 1.1 / 0.1 is 11 steps, not 12.
    window = math.ceil(round(reaction_time / dt, 9))
    if reaction_time > 0:
        window = max(1, window)
    steps = torch.arange(on.shape[-1], device=on.device)
    before = torch.nn.functional.pad(on, (1, 0))[..., :-1]
    onset = torch.where(on & ~before, steps, -1).cummax(-1).values
    return (onset >= 0) & (steps - onset < window)


def shift_labels(labels: Tensor, n_residual: int, fill: int = -1) -> Tensor:
    """Labels delayed until the signal can have arrived at the readout.

    A network that passes one layer in each timestep answers `n_residual` steps late. The labels
    move to later timesteps, `labels[t - n_residual]`, and `fill` stands where nothing can be known
    yet; T grows by `n_residual`, so the input needs as many blank timesteps at its end.

    Args:
        labels: (..., T), such as (B, T).
        n_residual: timesteps that the signal needs from the input to the readout.
        fill: the code for "no label".

    Returns:
        Labels (..., T + n_residual) of the same dtype.

    Raises:
        ValueError: if `labels` has no time axis or `n_residual` is negative.

    References:
        DynVision's residual timesteps.

    Example:
        >>> import torch
        >>> shift_labels(torch.tensor([[-1, 4, 4]]), n_residual=2)
        tensor([[-1, -1, -1,  4,  4]])
    """
    check_tensor("labels", labels)
    if labels.ndim == 0:
        raise refuse("labels", "the shape (..., T)", describe(labels))
    if isinstance(n_residual, bool) or not isinstance(n_residual, int) or n_residual < 0:
        raise refuse("n_residual", "an integer of at least 0", describe(n_residual))
    if labels.dtype is torch.bool or labels.dtype is torch.uint8:
        # Unsigned types and booleans have no room for a negative fill.
        labels = labels.to(torch.int64)
    return torch.nn.functional.pad(labels, (n_residual, 0), value=fill)


def first_label(labels: Tensor) -> Tensor:
    """The first label of every sample, held over all timesteps.

    A stimulus that is switched off leaves no label, yet one may ask whether the network still
    answers with it. A sample without any label keeps its negative code of t = 0.

    Args:
        labels: integer labels (B, T), negative where there is none.

    Returns:
        Labels (B, T), constant over T.

    Raises:
        ValueError: if `labels` is not (B, T).

    Example:
        >>> import torch
        >>> first_label(torch.tensor([[-1, 4, 4], [-1, -1, -1]]))
        tensor([[ 4,  4,  4],
                [-1, -1, -1]])
    """
    check_tensor("labels", labels)
    if labels.ndim != 2:
        raise refuse("labels", "the shape (B, T)", describe(labels))
    if labels.shape[1] == 0:
        return labels
    # Of several largest values argmax takes the first; it has no kernel for booleans.
    onset = (labels >= 0).to(torch.uint8).argmax(1, keepdim=True)
    return labels.gather(1, onset).expand_as(labels)


def _on_or_off(pattern: Any) -> Tensor:
    """The pattern as a boolean tensor (..., P)."""
    expected = "0 and 1, at least one of them"
    if isinstance(pattern, str):
        if not pattern or set(pattern) - {"0", "1"}:
            raise refuse("pattern", expected, describe(pattern))
        pattern = [int(sign) for sign in pattern]
    try:
        values = torch.as_tensor(pattern)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refuse("pattern", expected, describe(pattern)) from error
    if values.ndim == 0 or values.shape[-1] == 0:
        raise refuse("pattern", expected, describe(pattern))
    if values.dtype is not torch.bool and bool(((values != 0) & (values != 1)).any()):
        raise refuse("pattern", expected, describe(pattern))
    return values.bool()
