"""How often the network changes its mind."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, device_of
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import ratio
from dynmetrics.temporal.answers import guesses_of
from dynmetrics.temporal.inputs import LAYOUTS, Classification, temporal_inputs


class FlipRate(StreamingMetric):
    r"""The share of pairs of consecutive timesteps between which the guess changes.

    0 is a network that never changes its mind, 1 one that does so at every timestep. A stable
    network is not a right one: read it beside accuracy.

    Args:
        layout: the axes of `preds`, "BTC", "BCT" or "TBC"; never guessed.
        average: "sample" is the mean of the rates of the samples, as for the perturbation sequences
            of ImageNet-P; "pooled" the share of all pairs, in which long samples weigh more.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds`, scores (B, T, C) in the axes of `layout` or class indices (B, T),
    `target`, integer labels (B, T) or (B,), negative where there is none, and `mask`, boolean
    (B, T) or (B,). A pair counts if both of its timesteps have a label and a guess, so no row with
    a NaN score takes part.

    Returns:
        Tensor (), in [0, 1]. Samples without a pair are left out; NaN without any.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        Hendrycks and Dietterich (2019), flip probability.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import FlipRate
        >>> metric = FlipRate()
        >>> metric.update(torch.tensor([[0, 1, 1]]), torch.tensor([1]))
        >>> metric.update(torch.tensor([[2, 2, 2]]), torch.tensor([1]))
        >>> metric.compute()
        tensor(0.2500, dtype=torch.float64)
    """

    higher_is_better = False
    counts: Tensor
    rates: Tensor

    def __init__(self, *, layout: str = "BTC", average: str = "sample", **kwargs: Any) -> None:
        check_choice("layout", layout, LAYOUTS)
        check_choice("average", average, ("sample", "pooled"))
        super().__init__(**kwargs)
        self.layout = layout
        self.average = average
        self.add_counts("counts", (3,))
        self.add_sum("rates")

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        return ()

    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Count a batch: scores (B, T, C), labels (B, T) or (B,), mask (B, T) or (B,)."""
        inputs = temporal_inputs(preds, target, mask, layout=self.layout)
        counts, rates = flip_counts(inputs)
        self.accumulate(counts=counts, rates=rates)

    def compute(self) -> Tensor:
        """The rate over everything seen."""
        flips, pairs, samples = self.counts
        return ratio(flips, pairs) if self.average == "pooled" else ratio(self.rates, samples)


def flip_counts(inputs: Classification) -> tuple[Tensor, Tensor]:
    """What a batch adds: flips, pairs and samples with a pair (3,), and the samples' rates."""
    guesses = guesses_of(inputs)
    there = (inputs.labels >= 0) & (guesses >= 0)
    paired = there[:, 1:] & there[:, :-1]
    pairs = paired.sum(1)
    flips = ((guesses[:, 1:] != guesses[:, :-1]) & paired).sum(1)
    counts = torch.stack([flips, pairs, (pairs > 0).to(torch.int64)]).sum(1)
    return counts, ratio(flips, pairs.clamp(min=1)).sum()


def flip_rate(preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any) -> Tensor:
    """`FlipRate` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> flip_rate(torch.tensor([[0, 1, 1]]), torch.tensor([1]))
        tensor(0.5000, dtype=torch.float64)
    """
    metric = FlipRate(sync_on_compute=False, **options).to(device_of("preds", preds))
    metric.update(preds, target, mask)
    return metric.compute()
