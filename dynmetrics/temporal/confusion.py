"""Which class is taken for which, at every timestep."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_positive_int, describe, device_of, refuse
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.state import BY_DATA, GROWS
from dynmetrics.temporal.answers import guesses_of
from dynmetrics.temporal.inputs import LAYOUTS, Classification, temporal_inputs


class TemporalConfusion(StreamingMetric):
    r"""Counts of true against guessed classes at every timestep.

    `result[t, i, j]` is how often class i was taken for class j at t. Row sums are the labels of a
    class, the diagonal its right guesses. The state is T x C x C counts, 8 bytes each: 240 MB for
    30 timesteps and 1000 classes; for averages over classes alone take `TemporalAccuracy`.

    Args:
        num_classes: C. Needed for class indices; otherwise the scores tell.
        layout: the axes of `preds`, "BTC", "BCT" or "TBC"; never guessed.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds`, scores (B, T, C) in the axes of `layout` or class indices (B, T),
    `target`, integer labels (B, T) or (B,), negative where there is none, and `mask`, boolean
    (B, T) or (B,). T may differ between calls and ranks. Rows without a place in the matrix, due to
    a label of C or more, a NaN score or a guess that is no class, are left out; `compute` warns.

    Returns:
        Tensor (T, C, C), int64, row = true class.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        Equal to scikit-learn's `confusion_matrix` at every timestep.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import TemporalConfusion
        >>> metric = TemporalConfusion()
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> metric.update(logits, torch.tensor([0]))
        >>> metric.update(logits, torch.tensor([[-1, 1]]))
        >>> metric.compute()
        tensor([[[1, 0],
                 [0, 0]],
        <BLANKLINE>
                [[0, 1],
                 [0, 1]]])
    """

    higher_is_better = None
    confusion: Tensor
    left_out: Tensor

    def __init__(
        self, *, num_classes: int | None = None, layout: str = "BTC", **kwargs: Any
    ) -> None:
        if num_classes is not None:
            check_positive_int("num_classes", num_classes)
        check_choice("layout", layout, LAYOUTS)
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.layout = layout
        classes = BY_DATA if num_classes is None else num_classes
        self.add_counts("confusion", (GROWS, classes, classes))
        self.add_counts("left_out")

    @property
    def axes(self) -> Axes:
        """The axis letters of the result."""
        return ("T", "C", "C")

    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Count a batch: scores (B, T, C), labels (B, T) or (B,), mask (B, T) or (B,)."""
        inputs = temporal_inputs(preds, target, mask, layout=self.layout)
        classes = number_of_classes(inputs, self.num_classes)
        if inputs.labels.numel() == 0:
            return
        confusion, left_out = confusion_counts(inputs, classes)
        self.accumulate(confusion=confusion, left_out=left_out)

    def compute(self) -> Tensor:
        """The matrices over everything seen."""
        number = int(self.left_out)
        if number:
            self.warn_once(
                "left out", f"{number} labelled rows have no place in the matrix and are left out"
            )
        return self.confusion


def number_of_classes(inputs: Classification, num_classes: int | None) -> int:
    """C of the scores, or as told for class indices."""
    if not inputs.preds.is_floating_point():
        if num_classes is None:
            raise refuse("num_classes", "a number, for class indices", "None")
        return num_classes
    classes = inputs.preds.shape[-1]
    if num_classes not in (None, classes):
        raise refuse("preds", f"num_classes={num_classes} classes", describe(inputs.preds))
    return classes


def confusion_counts(inputs: Classification, classes: int) -> tuple[Tensor, Tensor]:
    """What a batch adds: counts (T, C, C), and the number of labelled rows left out."""
    labels, guesses = inputs.labels, guesses_of(inputs)
    valid = labels >= 0
    placed = valid & (labels < classes) & (guesses >= 0) & (guesses < classes)
    steps = labels.shape[1]
    index = torch.arange(steps, device=labels.device) * classes + labels.clamp(0, classes - 1)
    index = index * classes + guesses.clamp(0, classes - 1)
    counts = labels.new_zeros(steps * classes * classes)
    counts = counts.index_add(0, index.reshape(-1), placed.reshape(-1).to(torch.int64))
    return counts.reshape(steps, classes, classes), (valid & ~placed).sum()


def temporal_confusion(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> Tensor:
    """`TemporalConfusion` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> temporal_confusion(torch.tensor([[0, 1]]), torch.tensor([1]), num_classes=2)[1]
        tensor([[0, 0],
                [0, 1]])
    """
    metric = TemporalConfusion(sync_on_compute=False, **options).to(device_of("preds", preds))
    metric.update(preds, target, mask)
    return metric.compute()
