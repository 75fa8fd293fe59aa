"""Curves over the threshold of certainty: how fast, how right, and at what cost."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_tensor, describe, refuse
from dynmetrics.core.numerics import ratio
from dynmetrics.temporal.inputs import LAYOUTS
from dynmetrics.temporal.latency import first_step_histogram
from dynmetrics.temporal.reaction import (
    MEASURES,
    AnswersAtThreshold,
    answers_at_threshold,
    check_threshold,
    evidence_of,
)


def reaction_time_curve(
    preds: Tensor,
    target: Tensor,
    thresholds: Sequence[float] | Tensor,
    mask: Tensor | None = None,
    *,
    measure: str = "confidence",
    layout: str = "BTC",
) -> dict[str, Tensor]:
    """Speed against accuracy: `ReactionTime` of one batch at every one of H thresholds.

    Args:
        preds: logits with the axes of `layout`.
        target: integer labels (B, T) or (B,), negative where there is none.
        thresholds: H probabilities in (0, 1], or entropies in nats.
        mask: boolean (B, T) or (B,), True where a timestep counts.
        measure: "confidence" or "entropy".
        layout: "BTC", "BCT" or "TBC".

    Returns:
        A dict of curves (H,): `threshold`, `mean` of the reaction time, `accuracy`, `forced`,
        `earliness`, the mean of 1 - (timesteps seen) / T, and `harmonic_mean` of accuracy and
        earliness, the score of early classification. NaN without a labelled sample.

    Raises:
        ValueError: for options or shapes that do not fit.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]])
        >>> curve = reaction_time_curve(logits, torch.tensor([0]), [0.7, 0.9])
        >>> curve["mean"], curve["accuracy"]
        (tensor([0., 2.], dtype=torch.float64), tensor([1., 0.], dtype=torch.float64))
    """
    values, answers = _answers(preds, target, thresholds, mask, measure, layout)
    histograms = torch.stack([first_step_histogram(answer.chosen) for answer in answers])
    n = torch.stack([answer.there.sum() for answer in answers])
    seen = 1 + torch.arange(histograms.shape[1], device=histograms.device)
    mean_seen = ratio((histograms * seen).sum(1), n)
    accuracy = ratio(torch.stack([answer.right.sum() for answer in answers]), n)
    earliness = 1 - mean_seen / max(1, histograms.shape[1])
    return {
        "threshold": values,
        "mean": mean_seen - 1,
        "accuracy": accuracy,
        "forced": ratio(torch.stack([answer.forced.sum() for answer in answers]), n),
        "earliness": earliness,
        "harmonic_mean": _harmonic_mean(accuracy, earliness),
    }


def early_exit_curve(
    preds: Tensor,
    target: Tensor,
    costs: Sequence[float] | Tensor,
    thresholds: Sequence[float] | Tensor,
    mask: Tensor | None = None,
    *,
    measure: str = "confidence",
    layout: str = "BTC",
) -> dict[str, Tensor]:
    """Cost against accuracy: every timestep, or exit, may end the computation of a sample.

    A sample leaves at the first labelled timestep that is sure enough, at the latest at its last.
    Exits are simulated from the logits of all timesteps. Choose thresholds on other data than
    those on which the curve is reported.

    Args:
        preds: logits with the axes of `layout`.
        target: integer labels (B, T) or (B,), negative where there is none.
        costs: (T,), what a sample has cost in total when it leaves at each timestep.
        thresholds: H probabilities in (0, 1], or entropies in nats.
        mask: boolean (B, T) or (B,), True where a timestep counts.
        measure: "confidence" or "entropy".
        layout: "BTC", "BCT" or "TBC".

    Returns:
        A dict: `threshold` (H,), `cost` (H,), the mean over samples, `accuracy` (H,), and `exits`
        (H, T), how many samples leave at each timestep. NaN without a labelled sample.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        Huang et al. (2018), MSDNet, adaptive inference.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[[1.0, 0.0], [2.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
        >>> curve = early_exit_curve(logits, torch.tensor([0, 0]), [1, 3], [0.7, 0.8])
        >>> curve["cost"], curve["accuracy"]
        (tensor([1., 3.], dtype=torch.float64), tensor([0.5000, 1.0000], dtype=torch.float64))
    """
    values, answers = _answers(preds, target, thresholds, mask, measure, layout)
    exits = torch.stack([first_step_histogram(answer.chosen) for answer in answers])
    prices = torch.as_tensor(costs, dtype=torch.float64, device=exits.device)
    if prices.shape != exits.shape[1:]:
        raise refuse("costs", f"a cost for each of {exits.shape[1]} timesteps", describe(prices))
    n = exits.sum(1)
    return {
        "threshold": values,
        "cost": ratio((exits * prices).sum(1), n),
        "accuracy": ratio(torch.stack([answer.right.sum() for answer in answers]), n),
        "exits": exits,
    }


def _answers(
    preds: Tensor,
    target: Tensor,
    thresholds: Sequence[float] | Tensor,
    mask: Tensor | None,
    measure: str,
    layout: str,
) -> tuple[Tensor, list[AnswersAtThreshold]]:
    """The thresholds (H,) in float64, and the answers of the batch to each."""
    check_choice("measure", measure, MEASURES)
    check_choice("layout", layout, LAYOUTS)
    check_tensor("preds", preds)
    values = torch.as_tensor(thresholds, dtype=torch.float64)
    if values.ndim != 1 or len(values) == 0:
        raise refuse("thresholds", "one or more in one dimension", describe(values))
    for value in values.tolist():
        check_threshold(value, measure)
    rows, evidence = evidence_of(preds, target, mask, measure, layout)
    if rows.labels.shape[1] == 0:
        raise refuse("preds", "at least one timestep", describe(preds))
    answers = [answers_at_threshold(rows, evidence, value, measure) for value in values.tolist()]
    return values.to(evidence.device), answers


def _harmonic_mean(one: Tensor, other: Tensor) -> Tensor:
    """2ab / (a + b), 0 if both are."""
    total = one + other
    return torch.where(total == 0, 0.0, 2 * one * other / total)
