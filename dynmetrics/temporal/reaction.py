"""When the network is sure enough to answer, and what it answers then."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, describe, refuse
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import ratio
from dynmetrics.core.state import GROWS
from dynmetrics.temporal.answers import warn_of_labels
from dynmetrics.temporal.inputs import LAYOUTS, time_major
from dynmetrics.temporal.latency import first_step_histogram, histogram_mean
from dynmetrics.temporal.ranking import chunks
from dynmetrics.temporal.row_scan import RowStatistics, rows_of

MEASURES = ("confidence", "entropy")


class ReactionTime(StreamingMetric):
    r"""The timestep at which a network that answers once it is sure would answer.

    It answers at the first labelled timestep whose largest softmax probability reaches `threshold`,
    or whose entropy falls to it; if none does, at the last, and the answer is `forced`. The time
    and the `accuracy` at it belong together: a lower threshold is faster and less accurate, see
    `reaction_time_curve`. Reaction times of recurrent networks have been found to predict those of
    people.

    Args:
        threshold: the least probability, in (0, 1]; or for the entropy the largest, in nats.
        measure: "confidence" or "entropy".
        layout: the axes of `preds`, "BTC", "BCT" or "TBC"; never guessed.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds`, logits (B, T, C) in the axes of `layout`, `target`, integer labels
    (B, T) or (B,), negative where there is none, and `mask`, boolean (B, T) or (B,). Only labelled
    timesteps take part. Or, for the confidence, the `row_statistics` of the batch and None. T may
    differ between calls and ranks. A row with a NaN is never sure and never right; a label of C or
    more is wrong, and `compute` warns.

    Returns:
        A dict: `mean` () of the reaction time in timesteps counted from 0; `accuracy` (), the share
        of right answers; `forced` (), the share of samples that never were sure; `n` (), the
        samples with a label; `histogram` (T,) of the reaction times. NaN where nothing counts.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        Spoerer et al. (2020), PLoS Computational Biology 16, e1008215.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import ReactionTime
        >>> metric = ReactionTime(threshold=0.8)
        >>> logits = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]])
        >>> metric.update(logits, torch.tensor([0]))
        >>> metric.update(logits / 10, torch.tensor([0]))
        >>> metric.compute()["mean"]
        tensor(1.5000, dtype=torch.float64)
    """

    higher_is_better = False
    histogram: Tensor
    counts: Tensor
    outside: Tensor

    def __init__(
        self,
        *,
        threshold: float = 0.9,
        measure: str = "confidence",
        layout: str = "BTC",
        **kwargs: Any,
    ) -> None:
        check_choice("measure", measure, MEASURES)
        check_choice("layout", layout, LAYOUTS)
        check_threshold(threshold, measure)
        super().__init__(**kwargs)
        self.threshold = float(threshold)
        self.measure = measure
        self.layout = layout
        self.add_counts("histogram", (GROWS,))
        self.add_counts("counts", (3,))
        self.add_counts("outside")

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        return {"mean": (), "accuracy": (), "forced": (), "n": (), "histogram": ("T",)}

    def update(
        self, preds: Tensor | RowStatistics, target: Tensor | None, mask: Tensor | None = None
    ) -> None:
        """Add a batch: logits (B, T, C), labels (B, T) or (B,), mask (B, T) or (B,)."""
        rows, evidence = evidence_of(preds, target, mask, self.measure, self.layout)
        if rows.labels.numel() == 0:
            return
        answer = answers_at_threshold(rows, evidence, self.threshold, self.measure)
        marks = torch.stack([answer.there, answer.right, answer.forced])
        self.accumulate(
            histogram=first_step_histogram(answer.chosen),
            counts=marks.sum(1),
            outside=(rows.labels >= rows.classes).sum(),
        )

    def compute(self) -> dict[str, Tensor]:
        """The reaction times over everything seen."""
        warn_of_labels(self, self.outside)
        n, right, forced = self.counts
        return {
            "mean": histogram_mean(self.histogram),
            "accuracy": ratio(right, n),
            "forced": ratio(forced, n),
            "n": n,
            "histogram": self.histogram,
        }


class AnswersAtThreshold(NamedTuple):
    """What a network that waits for a threshold does with every sample."""

    chosen: Tensor
    """(B, T) bool, True at the timestep of the answer alone."""
    there: Tensor
    """(B,) bool, the sample has a labelled timestep."""
    right: Tensor
    """(B,) bool."""
    forced: Tensor
    """(B,) bool, no timestep reached the threshold."""


def check_threshold(threshold: Any, measure: str) -> None:
    """Refuse a threshold that its measure cannot have."""
    number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if measure == "confidence" and not (number and 0 < threshold <= 1):
        raise refuse("threshold", "a probability above 0, at most 1", describe(threshold))
    if measure == "entropy" and not (number and 0 <= threshold < torch.inf):
        raise refuse("threshold", "an entropy in nats, 0 or more", describe(threshold))


def evidence_of(
    preds: Any, target: Any, mask: Any, measure: str, layout: str
) -> tuple[RowStatistics, Tensor]:
    """The statistics of the rows, and the confidence or the entropy of each, (B, T)."""
    rows = rows_of(preds, target, mask, layout=layout)
    if measure == "confidence":
        return rows, rows.log_guess.exp()
    if isinstance(preds, RowStatistics):
        raise refuse("preds", "scores, for measure='entropy'", "row statistics")
    return rows, row_entropy(time_major(preds, layout))


def row_entropy(scores: Tensor) -> Tensor:
    """The entropy in nats (B, T) of the softmax of scores (B, T, C)."""
    parts = [_entropy(chunk.values, chunk.dim) for chunk in chunks(scores)]
    return torch.cat(parts).reshape(scores.shape[:-1])


def _entropy(scores: Tensor, dim: int) -> Tensor:
    entropy: Tensor = torch.special.entr(scores.softmax(dim)).sum(dim)
    return entropy


def answers_at_threshold(
    rows: RowStatistics, evidence: Tensor, threshold: float | Tensor, measure: str
) -> AnswersAtThreshold:
    """The answers of a batch to one threshold."""
    valid = rows.labels >= 0
    sure = valid & (evidence >= threshold if measure == "confidence" else evidence <= threshold)
    there, forced = valid.any(1), valid.any(1) & ~sure.any(1)
    # Of several largest values argmax takes the first; it has no kernel for booleans.
    first = sure.to(torch.uint8).argmax(1)
    last = valid.shape[1] - 1 - valid.flip(1).to(torch.uint8).argmax(1)
    time = torch.where(forced, last, first)
    steps = torch.arange(valid.shape[1], device=valid.device)
    chosen = (steps == time.unsqueeze(1)) & there.unsqueeze(1)
    return AnswersAtThreshold(chosen, there, (rows.hits() & chosen).any(1), forced)


def reaction_time(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """`ReactionTime` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]]])
        >>> reaction_time(logits, torch.tensor([0]), threshold=0.95)["accuracy"]
        tensor(0., dtype=torch.float64)
    """
    metric = ReactionTime(sync_on_compute=False, **options).to(preds.device)
    metric.update(preds, target, mask)
    return metric.compute()
