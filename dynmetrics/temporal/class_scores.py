"""Precision, recall and F score at every timestep."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_positive_int, describe, device_of, refuse
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import ratio
from dynmetrics.core.state import BY_DATA, GROWS
from dynmetrics.temporal.answers import guesses_of, warn_of_labels
from dynmetrics.temporal.averaging import ABSENT_CLASSES, AVERAGES, average_rates
from dynmetrics.temporal.confusion import number_of_classes
from dynmetrics.temporal.inputs import LAYOUTS, Classification, temporal_inputs


class ClassScore(StreamingMetric):
    """What precision, recall and F score share: counts of hits, guesses and labels per class."""

    higher_is_better = True
    entry = ""
    counts: Tensor
    valid: Tensor
    outside: Tensor

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        average: str = "micro",
        absent_classes: str = "drop",
        layout: str = "BTC",
        **kwargs: Any,
    ) -> None:
        if num_classes is not None:
            check_positive_int("num_classes", num_classes)
        check_choice("average", average, AVERAGES)
        check_choice("absent_classes", absent_classes, ABSENT_CLASSES)
        check_choice("layout", layout, LAYOUTS)
        super().__init__(**kwargs)
        self.num_classes = num_classes
        self.average = average
        self.absent_classes = absent_classes
        self.layout = layout
        self.add_counts("counts", (3, GROWS, BY_DATA if num_classes is None else num_classes))
        self.add_counts("valid", (GROWS,))
        self.add_counts("outside")

    def score(self, hits: Tensor, guessed: Tensor, labels: Tensor) -> Tensor:
        """The score from counts; NaN for 0 / 0."""
        raise NotImplementedError

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        classes = ("C",) if self.average == "none" else ()
        return {"overall": classes, self.entry: (*classes, "T"), "valid": ("T",)}

    def update(self, preds: Tensor, target: Tensor, mask: Tensor | None = None) -> None:
        """Count a batch: scores (B, T, C), labels (B, T) or (B,), mask (B, T) or (B,)."""
        inputs = temporal_inputs(preds, target, mask, layout=self.layout)
        classes = number_of_classes(inputs, self.num_classes)
        if inputs.labels.numel() == 0:
            return
        valid = inputs.labels >= 0
        self.accumulate(
            counts=class_score_counts(inputs, classes),
            valid=valid.sum(0),
            outside=(inputs.labels >= classes).sum(),
        )

    def compute(self) -> dict[str, Tensor]:
        """The curve over everything seen."""
        warn_of_labels(self, self.outside)
        curve = self._averaged(self.counts, self.valid)
        if self.average == "none":
            curve = curve.T
        overall = self._averaged(self.counts.sum(1), self.valid.sum())
        return {"overall": overall, self.entry: curve, "valid": self.valid}

    def _averaged(self, counts: Tensor, valid: Tensor) -> Tensor:
        """The score (...) or (..., C) from counts (3, ..., C) and the labelled rows (...)."""
        hits, guessed, labels = counts
        if self.average == "micro":
            value = self.score(hits.sum(-1), guessed.sum(-1), valid)
            return torch.where(valid > 0, value.nan_to_num(nan=0.0), torch.nan)
        # A class that has labels and is never guessed scores 0; one without labels is absent.
        rates = torch.where(
            labels > 0, self.score(hits, guessed, labels).nan_to_num(nan=0.0), torch.nan
        )
        if self.average == "weighted":
            return ratio((rates.nan_to_num(nan=0.0) * labels).sum(-1), valid)
        return average_rates(rates, valid, self.average, self.absent_classes)


class TemporalPrecision(ClassScore):
    r"""The share of right guesses among the guesses of a class, at every timestep.

    A class with low precision is guessed where it is not. Counts are pooled over batches and ranks.

    Args:
        num_classes: C. Needed for class indices; otherwise the scores tell.
        average: "micro" pools all classes, which makes precision, recall and accuracy one number;
            "macro" is the mean over classes, "weighted" the mean weighed with the labels n_i / n;
            "none" gives every class.
        absent_classes: classes without a label are left out of the macro average ("drop"), count as
            "zero", or make it "nan". A class that has labels but no guess scores 0.
        layout: the axes of `preds`, "BTC", "BCT" or "TBC"; never guessed.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds`, scores (B, T, C) in the axes of `layout` or class indices (B, T),
    `target`, integer labels (B, T) or (B,), negative where there is none, and `mask`, boolean
    (B, T) or (B,). T may differ between calls and ranks. A row with a NaN guesses no class; a label
    of C or more is never found, and `compute` warns.

    Returns:
        A dict: `overall` () over all timesteps pooled, `precision` (T,) and `valid` (T,); with
        `average="none"` (C,) and (C, T). Fractions in [0, 1]; NaN without a label.

    Raises:
        ValueError: for options or shapes that do not fit.

    References:
        MATLAB `precisionMetric`. With `absent_classes="zero"` equal to scikit-learn's
        `precision_score` over all C labels with `zero_division=0`, to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import TemporalPrecision
        >>> metric = TemporalPrecision(average="macro")
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> metric.update(logits, torch.tensor([0]))
        >>> metric.update(logits, torch.tensor([[1, 1]]))
        >>> metric.compute()["precision"]
        tensor([0.2500, 0.2500], dtype=torch.float64)
    """

    entry = "precision"

    def score(self, hits: Tensor, guessed: Tensor, labels: Tensor) -> Tensor:
        """TP / (TP + FP)."""
        return ratio(hits, guessed)


class TemporalRecall(ClassScore):
    r"""The share of a class's labels that are guessed right, at every timestep.

    A class with low recall is missed. The macro average is the balanced accuracy. Counts are pooled
    over batches and ranks. Options and inputs as in `TemporalPrecision`.

    Returns:
        A dict: `overall` (), `recall` (T,) and `valid` (T,); with `average="none"` (C,) and (C, T).
        Fractions in [0, 1]; NaN without a label.

    References:
        MATLAB `recallMetric`. With `absent_classes="zero"` equal to scikit-learn's `recall_score`
        over all C labels with `zero_division=0`, with "drop" to `balanced_accuracy_score`, to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import TemporalRecall
        >>> metric = TemporalRecall(average="macro")
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> metric.update(logits, torch.tensor([0]))
        >>> metric.update(logits, torch.tensor([[1, 1]]))
        >>> metric.compute()["recall"]
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """

    entry = "recall"

    def score(self, hits: Tensor, guessed: Tensor, labels: Tensor) -> Tensor:
        """TP / (TP + FN)."""
        return ratio(hits, labels)


class TemporalFScore(ClassScore):
    r"""The weighed harmonic mean of precision and recall, at every timestep.

    Counts are pooled over batches and ranks. Options and inputs as in `TemporalPrecision`.

    Args:
        beta: how many times recall counts as much as precision; 1 for the F1 score.
        kwargs: the options of `TemporalPrecision`.

    Returns:
        A dict: `overall` (), `fscore` (T,) and `valid` (T,); with `average="none"` (C,) and (C, T).
        Fractions in [0, 1]; NaN without a label.

    References:
        MATLAB `fScoreMetric`. With `absent_classes="zero"` equal to scikit-learn's `fbeta_score`
        over all C labels with `zero_division=0`, to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import TemporalFScore
        >>> metric = TemporalFScore(average="macro")
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> metric.update(logits, torch.tensor([0]))
        >>> metric.update(logits, torch.tensor([[1, 1]]))
        >>> metric.compute()["fscore"]
        tensor([0.3333, 0.3333], dtype=torch.float64)
    """

    entry = "fscore"

    def __init__(self, *, beta: float = 1.0, **kwargs: Any) -> None:
        if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 0 < beta < torch.inf:
            raise refuse("beta", "a positive number", describe(beta))
        super().__init__(**kwargs)
        self.beta = float(beta)

    def score(self, hits: Tensor, guessed: Tensor, labels: Tensor) -> Tensor:
        """(1 + b^2) TP / ((1 + b^2) TP + b^2 FN + FP)."""
        square = self.beta**2
        return ratio((1 + square) * hits, square * labels + guessed)


def class_score_counts(inputs: Classification, classes: int) -> Tensor:
    """What a batch adds: hits, guesses and labels (3, T, C) of labelled rows."""
    labels, guesses = inputs.labels, guesses_of(inputs)
    valid = labels >= 0
    known = valid & (labels < classes)
    guessed = valid & (guesses >= 0) & (guesses < classes)
    steps = labels.shape[1]
    offset = torch.arange(steps, device=labels.device) * classes
    by_label = offset + labels.clamp(0, classes - 1)
    by_guess = offset + guesses.clamp(0, classes - 1)
    index = torch.stack([by_label, by_guess, by_label]).reshape(3, -1)
    marks = torch.stack([known & (guesses == labels), guessed, known]).reshape(3, -1)
    counts = labels.new_zeros((3, steps * classes)).scatter_add(1, index, marks.to(torch.int64))
    return counts.reshape(3, steps, classes)


def temporal_precision(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """`TemporalPrecision` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> guesses, labels = torch.tensor([[0, 1], [1, 1]]), torch.tensor([0, 0])
        >>> temporal_precision(guesses, labels, num_classes=2)["precision"]
        tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    return _of_one_batch(TemporalPrecision(sync_on_compute=False, **options), preds, target, mask)


def temporal_recall(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """`TemporalRecall` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> guesses, labels = torch.tensor([[0, 1], [1, 1]]), torch.tensor([0, 0])
        >>> temporal_recall(guesses, labels, num_classes=2)["recall"]
        tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    return _of_one_batch(TemporalRecall(sync_on_compute=False, **options), preds, target, mask)


def temporal_fscore(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """`TemporalFScore` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> guesses, labels = torch.tensor([[0, 1], [1, 1]]), torch.tensor([0, 0])
        >>> temporal_fscore(guesses, labels, num_classes=2)["fscore"]
        tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    return _of_one_batch(TemporalFScore(sync_on_compute=False, **options), preds, target, mask)


def _of_one_batch(
    metric: ClassScore, preds: Tensor, target: Tensor, mask: Tensor | None
) -> dict[str, Tensor]:
    metric.to(device_of("preds", preds))
    metric.update(preds, target, mask)
    return metric.compute()
