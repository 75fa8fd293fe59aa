"""The error of open-loop predictions, step by step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_flag, check_tensor, describe, refuse
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.moments import batch_moments, fold_moments, moment_mean, moment_variance
from dynmetrics.core.scales import largest_of_rows, power_of_two
from dynmetrics.core.state import GROWS
from dynmetrics.prediction.inputs import (
    check_positive,
    check_same_shape,
    checked_mask,
    float_pair,
    widened,
)

NORMALIZE = ("none", "persistence")
DISTANCES = ("lp", "cosine")


class RolloutError(StreamingMetric):
    r"""Error of predicted trajectories at every step of the horizon: lower is better.

    `error[t]` is the mean of |preds - target|^p over the episodes that last to step t, each of them
    first averaged over its tokens and channels; `se[t]` is its standard error with episodes as the
    sample, and `n[t]` how many there are. Read the curve for how fast a model drifts; `se` and `n`
    tell how far to trust its end, where few episodes are left.

    Args:
        p: the power: 1 as V-JEPA 2-AC, 2 the mean squared error of DINO-WM.
        root: take the p-th root of the mean, so that errors have the unit of the data (RMSE for
            p=2).
        normalize: "persistence" divides by the error of repeating the first frame: below 1 the
            model knows more than that nothing moves. The first frame is `initial`, or else the
            first step of the target that counts, where the baseline has no error.
        distance: "lp", or "cosine": 1 - cosine similarity over the last axis, from 0 to 2; a vector
            of zeros is like no other.
        threshold: also report the first step whose error exceeds it.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds` and `target` (B, T, ...); `mask`, boolean (B, T), True where a step
    counts, whatever stands elsewhere; and `initial` (B, ...), the last frame that was observed.
    T may differ between calls and ranks: curves are aligned at t = 0.

    Returns:
        A dict: `overall` (), over all steps that count, `error` (T,), `se` (T,), `n` (T,), `area`
        (), under the curve by the trapezoid rule in steps, and with `threshold` `first_above` (),
        NaN if the error stays below. NaN at a step without an episode, and `se` NaN with fewer than
        two. The standard errors of quotients and roots are by the delta method.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        torch_world `rollout_error`, to 1e-6, whose curve a NaN of padding spoils.

    Example:
        >>> import torch
        >>> from dynmetrics.prediction import RolloutError
        >>> metric = RolloutError()
        >>> metric.update(torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2))
        >>> metric.update(torch.tensor([[3.0]]), torch.zeros(1, 1))
        >>> metric.compute()["error"]
        tensor([2., 2.], dtype=torch.float64)
    """

    higher_is_better = False
    n: Tensor
    moments: Tensor

    def __init__(
        self,
        *,
        p: float = 1,
        root: bool = False,
        normalize: str = "none",
        distance: str = "lp",
        threshold: float | None = None,
        **kwargs: Any,
    ) -> None:
        _check_options(p, root, normalize, distance)
        if threshold is not None:
            check_positive("threshold", threshold)
        super().__init__(**kwargs)
        self.p = p
        self.root = root
        self.normalize = normalize
        self.distance = distance
        self.threshold = threshold
        self.add_counts("n", (GROWS,))
        # Of a quotient also the moments of the sum are kept: they give the covariance.
        self.add_folded("moments", (3, 1 if normalize == "none" else 3, GROWS), fold_moments)

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        curves = {"error": ("T",), "se": ("T",), "n": ("T",)}
        axes: dict[str, tuple[str, ...]] = {"overall": (), **curves, "area": ()}
        return axes if self.threshold is None else {**axes, "first_above": ()}

    def update(
        self,
        preds: Tensor,
        target: Tensor,
        mask: Tensor | None = None,
        initial: Tensor | None = None,
    ) -> None:
        """Add episodes: preds and target (B, T, ...), mask (B, T), initial (B, ...)."""
        preds, target, counted = trajectories(preds, target, mask)
        first = None
        if self.normalize == "persistence":
            first = first_frame(target, initial, counted)
        errors = episode_errors(preds, target, first, self.p, self.distance)
        moments = batch_moments(errors, 0, counted.unsqueeze(1))
        self.accumulate(n=counted.sum(0), moments=moments)

    def compute(self) -> dict[str, Tensor]:
        """The curves over all episodes seen."""
        means, variances = moment_mean(self.moments), moment_variance(self.moments, 1)
        totals = torch.where(self.n > 0, means * self.n, 0.0).sum(1)
        if self.normalize == "persistence":
            overall = totals[0] / totals[1]
            error, se = quotient(means, variances, self.n)
            defined = (self.n > 0) & (means[1] != 0)
        else:
            overall = totals[0] / self.n.sum()
            error, se = means[0], (variances[0] / self.n).sqrt()
            defined = self.n > 0
        if self.root:
            overall = overall ** (1 / self.p)
            error, se = rooted(error, se, self.p)
        result = {"overall": overall, "error": error, "se": se, "n": self.n}
        result["area"] = area(error, defined)
        if self.threshold is not None:
            result["first_above"] = first_above(error, defined, self.threshold)
        return result


def trajectories(preds: Any, target: Any, mask: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Trajectories (B, T, ...) in one float type, and which steps (B, T) count."""
    preds, target = float_pair(preds, target)
    check_same_shape(preds, target)
    if preds.ndim < 2 or 0 in preds.shape[2:]:
        raise refuse("preds", "trajectories (B, T, ...)", describe(preds))
    shape = tuple(preds.shape[:2])
    if mask is None:
        return preds, target, torch.ones(shape, dtype=torch.bool, device=preds.device)
    return preds, target, checked_mask(mask, shape, preds.device)


def first_frame(target: Tensor, initial: Any, counted: Tensor) -> Tensor:
    """The frame (B, 1, ...) that persistence repeats."""
    if initial is None:
        # What is masked may be anything, also the first step of an episode.
        before = (counted.cumsum(1) == 0).sum(1).clamp(max=max(target.shape[1] - 1, 0))
        place = before.view(-1, 1, *[1] * (target.ndim - 2)).expand(-1, 1, *target.shape[2:])
        return target.gather(1, place) if target.shape[1] else target
    check_tensor("initial", initial, target.device)
    expected = (target.shape[0], *target.shape[2:])
    if tuple(initial.shape) != expected:
        raise refuse("initial", f"one frame of each episode, {expected}", describe(initial))
    return widened(initial).to(target.dtype).unsqueeze(1)


def episode_errors(
    preds: Tensor, target: Tensor, first: Tensor | None, p: float, distance: str
) -> Tensor:
    """The error of every episode and step (B, 1, T), in float64.

    With the `first` frame also the error of repeating it, and their sum: (B, 3, T).
    """
    error = step_errors(preds, target, p, distance).unsqueeze(1)
    if first is None:
        return error
    baseline = step_errors(first.expand_as(target), target, p, distance).unsqueeze(1)
    return torch.cat([error, baseline, error + baseline], 1)


def step_errors(preds: Tensor, target: Tensor, p: float, distance: str) -> Tensor:
    """The error (B, T) in float64, averaged over what an episode has at a step."""
    if distance == "cosine":
        if preds.ndim < 3:
            raise refuse("preds", "vectors (B, T, ..., D) for a cosine", describe(preds))
        errors = 1 - (directions(preds) * directions(target)).sum(-1).clamp(-1, 1)
    else:
        errors = (preds - target).abs_()
        if p != 1:
            # Powers of float32 would leave its range.
            errors = errors.to(torch.float64)
            errors = errors.square() if p == 2 else errors.pow(p)
    return errors.unsqueeze(2).flatten(2).mean(2).to(torch.float64)


def directions(vectors: Tensor) -> Tensor:
    """Vectors (..., D) as float64 of length 1, of whatever length they were; zeros stay zeros."""
    scale = power_of_two(largest_of_rows(vectors.detach().to(torch.float64)))
    vectors = vectors.to(torch.float64) / scale
    sizes = vectors.norm(dim=-1, keepdim=True)
    return vectors / torch.where(sizes > 0, sizes, 1.0)


def quotient(means: Tensor, variances: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    """The quotient of the first two of three rows, and its standard error.

    The third row describes their sum. A quotient by zero is undefined.
    """
    baseline = torch.where(means[1] == 0, torch.nan, means[1])
    value = means[0] / baseline
    covariance = (variances[2] - variances[0] - variances[1]) / 2
    spread = variances[0] - 2 * value * covariance + value.square() * variances[1]
    return value, (spread.clamp(min=0) / n).sqrt() / baseline


def rooted(value: Tensor, se: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """The p-th root of a curve, and the standard error that it then has."""
    root = value ** (1 / p)
    return root, torch.where(se == 0, 0.0, se * root / (p * value))


def area(curve: Tensor, defined: Tensor) -> Tensor:
    """The area under a curve, where it is defined at both ends of a step."""
    panels = torch.where(defined[1:] & defined[:-1], (curve[1:] + curve[:-1]) / 2, 0.0)
    return torch.where(defined.any(), panels.sum(), torch.nan)


def first_above(curve: Tensor, defined: Tensor, threshold: float) -> Tensor:
    """The first step above a threshold, NaN if there is none; an error of NaN is above all."""
    above = defined & ~(curve <= threshold)
    steps = torch.arange(len(curve), device=curve.device, dtype=torch.float64)
    if not above.any():
        return steps.new_full((), torch.nan)
    return torch.where(above, steps, torch.inf).amin()


def _check_options(p: Any, root: Any, normalize: Any, distance: Any) -> None:
    check_positive("p", p)
    check_flag("root", root)
    check_choice("normalize", normalize, NORMALIZE)
    check_choice("distance", distance, DISTANCES)
    if distance == "cosine" and (p != 1 or root):
        raise refuse("distance", "'lp' for another p, or root=True", "'cosine'")


def rollout_error(
    pred: Tensor,
    target: Tensor,
    p: float = 1,
    *,
    mask: Tensor | None = None,
    initial: Tensor | None = None,
    root: bool = False,
    normalize: str = "none",
    distance: str = "lp",
) -> Tensor:
    """The curve `error` of `RolloutError`, differentiable.

    Args:
        pred: predicted trajectories (B, T, ...).
        target: the true ones.
        p: the power.
        mask: boolean (B, T), True where a step counts.
        initial: the last frame observed (B, ...), for persistence.
        root: take the p-th root.
        normalize: "none" or "persistence".
        distance: "lp" or "cosine".

    Returns:
        (T,), in the type of the trajectories; NaN at a step without an episode.

    Example:
        >>> import torch
        >>> rollout_error(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.zeros(2, 2))
        tensor([2., 3.])
    """
    _check_options(p, root, normalize, distance)
    preds, true, counted = trajectories(pred, target, mask)
    first = first_frame(true, initial, counted) if normalize == "persistence" else None
    errors = episode_errors(preds, true, first, p, distance)
    means = moment_mean(batch_moments(errors, 0, counted.unsqueeze(1)))
    curve = (
        means[0] if first is None else means[0] / torch.where(means[1] == 0, torch.nan, means[1])
    )
    return (curve ** (1 / p) if root else curve).to(preds.dtype)
