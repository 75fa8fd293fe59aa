"""When the network has decided."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, device_of
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import histogram_median, ratio
from dynmetrics.core.state import GROWS
from dynmetrics.temporal.answers import Answers, answers_of, warn_of_labels
from dynmetrics.temporal.inputs import LAYOUTS
from dynmetrics.temporal.row_scan import RowStatistics


class DecisionLatency(StreamingMetric):
    r"""The first timestep at which the network is right: for good, or at all.

    "stable" is the first labelled timestep from which on every guess is right, "first_correct" the
    first right guess, whatever follows. Samples that never get there have no latency; `never` says
    how many they are, and a low mean beside a high `never` is no fast network.

    Args:
        kind: "stable" or "first_correct".
        layout: the axes of `preds`, "BTC", "BCT" or "TBC"; never guessed.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds`, scores (B, T, C) in the axes of `layout` or class indices (B, T),
    `target`, integer labels (B, T) or (B,), negative where there is none, and `mask`, boolean
    (B, T) or (B,). Only labelled timesteps take part. Or the `row_statistics` of the batch and
    None. T may differ between calls and ranks. A row with a NaN is wrong; so is a label of C or
    more, and `compute` warns.

    Returns:
        A dict: `mean` () and `median` () over the samples that decide, in timesteps counted from 0;
        `histogram` (T,), how many decide at each timestep; `never` (), the fraction of samples that
        do not; `n` (), the samples with a label. NaN where nothing counts.

    Raises:
        ValueError: for options or shapes that do not fit.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import DecisionLatency
        >>> metric = DecisionLatency()
        >>> metric.update(torch.tensor([[0, 1, 0, 1]]), torch.tensor([1]))
        >>> metric.update(torch.tensor([[0, 1, 1, 1]]), torch.tensor([1]))
        >>> metric.compute()["mean"]
        tensor(2., dtype=torch.float64)
    """

    higher_is_better = False
    histogram: Tensor
    n: Tensor
    outside: Tensor

    def __init__(self, *, kind: str = "stable", layout: str = "BTC", **kwargs: Any) -> None:
        check_choice("kind", kind, ("stable", "first_correct"))
        check_choice("layout", layout, LAYOUTS)
        super().__init__(**kwargs)
        self.kind = kind
        self.layout = layout
        self.add_counts("histogram", (GROWS,))
        self.add_counts("n")
        self.add_counts("outside")

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        return {"mean": (), "median": (), "histogram": ("T",), "never": (), "n": ()}

    def update(
        self, preds: Tensor | RowStatistics, target: Tensor | None, mask: Tensor | None = None
    ) -> None:
        """Add a batch: scores (B, T, C), labels (B, T) or (B,), mask (B, T) or (B,)."""
        answers = answers_of(preds, target, mask, self.layout)
        if answers.labels.numel() == 0:
            return
        histogram, n = latency_counts(answers, self.kind)
        self.accumulate(histogram=histogram, n=n, outside=answers.outside)

    def compute(self) -> dict[str, Tensor]:
        """The latencies over everything seen."""
        warn_of_labels(self, self.outside)
        decided = self.histogram.sum()
        return {
            "mean": histogram_mean(self.histogram),
            "median": histogram_median(self.histogram),
            "histogram": self.histogram,
            "never": ratio(self.n - decided, self.n),
            "n": self.n,
        }


def latency_counts(answers: Answers, kind: str) -> tuple[Tensor, Tensor]:
    """What a batch adds: how many samples decide at each timestep (T,), and how many there are."""
    valid = answers.labels >= 0
    settled = answers.hits
    if kind == "stable":
        wrong = (valid & ~answers.hits).to(torch.int64)
        wrong_from_here = wrong.flip(1).cumsum(1).flip(1)
        settled = valid & (wrong_from_here == 0)
    return first_step_histogram(settled), valid.any(1).sum()


def first_step_histogram(marks: Tensor) -> Tensor:
    """How many rows of `marks` (B, T) are first True at each timestep, (T,)."""
    # Of several largest values argmax takes the first; it has no kernel for booleans.
    first = marks.to(torch.uint8).argmax(1)
    counts = torch.zeros(marks.shape[1], dtype=torch.int64, device=marks.device)
    return counts.index_add(0, first, marks.any(1).to(torch.int64))


def histogram_mean(histogram: Tensor) -> Tensor:
    """The mean position of the entries of a histogram; NaN without any."""
    positions = torch.arange(len(histogram), device=histogram.device)
    return ratio((positions * histogram).sum(), histogram.sum())


def decision_latency(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """`DecisionLatency` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> guesses = torch.tensor([[1, 0, 1]])
        >>> decision_latency(guesses, torch.tensor([1]), kind="first_correct")["mean"]
        tensor(0., dtype=torch.float64)
    """
    metric = DecisionLatency(sync_on_compute=False, **options).to(device_of("preds", preds))
    metric.update(preds, target, mask)
    return metric.compute()
