"""Whether a model is more surprised by what cannot happen."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_fraction,
    check_positive_int,
    check_tensor,
    describe,
    refuse,
    whole_numbers,
)
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import ratio, wilson_bounds
from dynmetrics.core.state import stacked_rows
from dynmetrics.prediction.inputs import checked_mask, widened

AGGREGATES = ("mean", "max")


class Surprise(StreamingMetric):
    r"""Violation of expectation: how often the impossible video of a pair surprises more.

    A video is kept as three numbers, 24 bytes: its surprise, its pair, and its kind. Surprise is
    the prediction error, aggregated over the steps of the video; the score is the share of pairs in
    which the impossible video has more of it, 0.5 by chance and 1 at best.

    Args:
        aggregate: "mean" over steps, the better choice for pairs, or "max", which papers use to
            judge single videos.
        confidence: the probability with which Wilson's interval covers the true share.
        capacity: the most videos to keep on one rank.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `error` (N, T), the prediction error at every step; `pair` (N,), integers equal
    for the videos of a pair; `possible` (N,), boolean; and `mask`, boolean (N, T), True where a
    step counts. The videos of a pair may come in different batches and on different ranks. Where a
    pair has several of a kind, every combination counts, and the pair is one all the same; so
    duplicates of a padded sampler do no harm. Equal surprise counts half, for a model that is
    surprised by nothing knows nothing; surprise of NaN loses.

    Returns:
        A dict: `pair_accuracy` (), `low` (), `high` (), `n` (), the complete pairs, `auroc` (), of
        single videos regardless of pairs, and `n_excluded` (), videos without a twin or without a
        step that counts. NaN and the interval [0, 1] without pairs.

    Raises:
        ValueError: for options or shapes that do not fit, and beyond the capacity.

    References:
        The pairwise accuracy of V-JEPA's intuitive physics evaluation (arXiv:2502.11831), without
        its padding by zeros, which lowers the mean; scikit-learn `roc_auc_score`, to 1e-12.

    Example:
        >>> import torch
        >>> from dynmetrics.prediction import Surprise
        >>> metric = Surprise()
        >>> metric.update(torch.tensor([[0.1, 0.2]]), torch.tensor([7]), torch.tensor([True]))
        >>> metric.update(torch.tensor([[0.1, 0.9]]), torch.tensor([7]), torch.tensor([False]))
        >>> metric.compute()["pair_accuracy"]
        tensor(1., dtype=torch.float64)
    """

    higher_is_better = True
    scores: list[Tensor]
    labels: list[Tensor]

    def __init__(
        self,
        *,
        aggregate: str = "mean",
        confidence: float = 0.95,
        capacity: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("aggregate", aggregate, AGGREGATES)
        check_fraction("confidence", confidence)
        if capacity is not None:
            check_positive_int("capacity", capacity)
        super().__init__(**kwargs)
        self.aggregate = aggregate
        self.confidence = confidence
        self.add_rows("scores", (), torch.float64, capacity)
        self.add_rows("labels", (2,), torch.int64, capacity)

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        return dict.fromkeys(("pair_accuracy", "low", "high", "n", "auroc", "n_excluded"), ())

    def update(
        self, error: Tensor, pair: Tensor, possible: Tensor, mask: Tensor | None = None
    ) -> None:
        """Keep videos: error (N, T), pair (N,), possible (N,), mask (N, T)."""
        check_tensor("error", error, self.device)
        if error.ndim != 2:
            raise refuse("error", "the shape (N, T)", describe(error))
        counted = torch.ones(error.shape, dtype=torch.bool, device=error.device)
        if mask is not None:
            counted = checked_mask(mask, tuple(error.shape), error.device)
        scores = video_surprise(widened(error), counted, self.aggregate)
        pairs = whole_numbers("pair", _per_video("pair", pair, error))
        kinds = _per_video("possible", possible, error)
        if kinds.dtype is not torch.bool:
            raise refuse("possible", "a boolean tensor", describe(possible))
        # The kind is 1 for possible, 0 for impossible, and -1 without a step to judge by.
        kinds = torch.where(counted.any(1), kinds.to(torch.int64), -1)
        self.accumulate(scores=scores, labels=torch.stack([pairs, kinds], 1))

    def compute(self) -> dict[str, Tensor]:
        """Share of pairs with the right order, over all videos seen."""
        scores = stacked_rows(self.state_specs["scores"], self.scores, self.device)
        labels = stacked_rows(self.state_specs["labels"], self.labels, self.device)
        judged = labels[:, 1] >= 0
        scores, pair, possible = scores[judged], labels[judged, 0], labels[judged, 1] == 1
        # A score of NaN is the most surprising for a possible video and the least for another.
        worst = torch.where(possible, torch.inf, -torch.inf).to(scores.dtype)
        scores = torch.where(scores.isnan(), worst, scores)
        group = torch.unique(pair, return_inverse=True)[1]
        right, combinations, videos = order_within(scores, possible, group)
        complete = combinations > 0
        n = complete.sum()
        k = ratio(right, combinations)[complete].sum()
        low, high = wilson_bounds(k, n, self.confidence)
        wins, among, _ = order_within(scores, possible, torch.zeros_like(group))
        return {
            "pair_accuracy": ratio(k, n),
            "low": low,
            "high": high,
            "n": n,
            "auroc": ratio(wins, among).sum() if len(among) else ratio(k.new_zeros(()), n * 0),
            "n_excluded": len(judged) - videos[complete].sum(),
        }


def video_surprise(error: Tensor, counted: Tensor, aggregate: str) -> Tensor:
    """The surprise (N,) of videos (N, T) in float64, over the steps that count; NaN without one."""
    error = error.to(torch.float64)
    if aggregate == "mean":
        return torch.where(counted, error, 0.0).sum(1) / counted.sum(1)
    # A column that loses to every error, for videos without any step.
    lowest = error.new_full((len(error), 1), -torch.inf)
    highest = torch.cat([torch.where(counted, error, -torch.inf), lowest], 1).amax(1)
    return torch.where(counted.any(1), highest, torch.nan)


def order_within(scores: Tensor, possible: Tensor, group: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of every group: combinations with the impossible score higher, all of them, and members.

    A tie counts half. By ranks, so that no combination is ever formed.
    """
    groups = int(group.max()) + 1 if len(group) else 0
    order = scores.argsort(stable=True)
    order = order[group[order].argsort(stable=True)]
    scores, possible, group = scores[order], possible[order], group[order]
    members = torch.bincount(group, minlength=groups)
    place = torch.arange(len(group), dtype=torch.float64, device=group.device)
    place = place - (members.cumsum(0) - members)[group] + 1
    fresh = torch.ones_like(possible)
    fresh[1:] = (scores[1:] != scores[:-1]) | (group[1:] != group[:-1])
    run = fresh.cumsum(0) - 1
    length = torch.bincount(run).to(torch.float64)
    rank = (torch.zeros_like(length).index_add_(0, run, place) / length)[run]
    impossible = torch.bincount(group[~possible], minlength=groups)
    sums = torch.zeros(groups, dtype=torch.float64, device=group.device)
    sums.index_add_(0, group[~possible], rank[~possible])
    right = sums - impossible * (impossible + 1) / 2
    return right, impossible * (members - impossible), members


def _per_video(argument: str, value: Any, error: Tensor) -> Tensor:
    check_tensor(argument, value, error.device)
    if value.shape != error.shape[:1]:
        raise refuse(argument, f"the shape (N,) = ({len(error)},)", describe(value))
    result: Tensor = value
    return result
