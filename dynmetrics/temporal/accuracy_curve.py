"""Accuracy at every timestep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_fraction, check_real, device_of, refuse
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import ratio, wilson_bounds
from dynmetrics.core.state import BY_DATA, GROWS
from dynmetrics.temporal.accuracy_counts import (
    NONFINITE,
    VALID,
    checked_options,
    label_counts,
    warn_out_of_range,
)
from dynmetrics.temporal.averaging import class_recall, report_empty
from dynmetrics.temporal.inputs import LAYOUTS, Classification, label_inputs, temporal_inputs
from dynmetrics.temporal.readout import READOUTS, cumulative_readout
from dynmetrics.temporal.row_scan import RowStatistics, rows_of


class TemporalAccuracy(StreamingMetric):
    r"""Classification accuracy at every timestep of a network that unfolds in time.

    `accuracy[t]` is the share of right guesses among the samples that have a label at timestep t;
    `overall` pools all labelled timesteps. Counts are pooled, never means of batches, so masked
    timesteps, short batches and idle ranks leave every value exact. Read the curve to see when the
    network knows the answer, and `valid` to see on how many labels each point rests.

    Args:
        num_classes: C. Needed for class indices with an average over classes; otherwise the scores
            tell.
        top_k: a guess counts as right if the label is among the k highest scores; several k cost
            one pass.
        average: "micro" pools labels; "macro" and "weighted" average the recall of the classes;
            "none" gives every class.
        absent_classes: classes without a label are left out of the macro average ("drop"), count as
            "zero", or make it "nan".
        ties: which of equal scores comes first: "lowest_index" as argmax, "optimistic" for the
            label, "pessimistic" against it.
        empty_value: what `overall` is if no label at all was valid.
        layout: the axes of `preds`, "BTC", "BCT" or "TBC"; never guessed.
        confidence: e.g. 0.95 adds Wilson's interval at every timestep; a macro average, which is no
            proportion, has none.
        target: "label" compares with the label of the timestep; "first_label" compares every
            timestep of a sample with its first label, also after the stimulus has gone.
        readout: "step" takes the scores of the timestep alone; "cumulative" their sum over all
            labelled timesteps up to it, the anytime answer of a network that gathers evidence;
            "cumulative_probabilities" the sum of their softmax.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `preds`, scores (B, T, C) in the axes of `layout` or class indices (B, T); and
    `target`, integer labels (B, T) or (B,), negative where there is none; and `mask`, boolean
    (B, T) or (B,), True where a label counts. T may differ between calls and ranks: curves are
    aligned at t = 0. `preds` may also be the `row_statistics` of the batch, and `target` None: then
    several metrics share one pass over the logits. A row of scores with a NaN is wrong and counted
    in `nonfinite`; a label of C or more is wrong, and `compute` warns. Scores are ranked as they
    are: logits, not a softmax.

    Returns:
        A dict: `overall` (), `accuracy` (T,), `valid` (T,), `nonfinite` (T,) and, with
        `confidence`, `low` and `high` (T,). For a sequence of k: `overall_top1`, `top1`,
        `low_top1` and so on. With `average="none"` values are (C,) and (C, T). Fractions in [0, 1];
        NaN at a timestep without a label, where the interval is [0, 1].

    Raises:
        ValueError: for options or shapes that do not fit, and for k > C.

    References:
        MATLAB `accuracyMetric`; DynVision `calculate_accuracy` and `calculate_topk_accuracy`, whose
        counts are met exactly; Wilson (1927) for the interval, equal to statsmodels to 1e-9.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import TemporalAccuracy
        >>> metric = TemporalAccuracy()
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> metric.update(logits, torch.tensor([0]))
        >>> metric.update(logits, torch.tensor([[-1, 1]]))
        >>> metric.compute()["accuracy"]
        tensor([1.0000, 0.5000], dtype=torch.float64)
    """

    higher_is_better = True
    counts: Tensor
    class_counts: Tensor

    def __init__(
        self,
        *,
        num_classes: int | None = None,
        top_k: int | Sequence[int] = 1,
        average: str = "micro",
        absent_classes: str = "drop",
        ties: str = "lowest_index",
        empty_value: float = 0.0,
        layout: str = "BTC",
        confidence: float | None = None,
        target: str = "label",
        readout: str = "step",
        **kwargs: Any,
    ) -> None:
        self_options = checked_options(num_classes, top_k, average, absent_classes, ties)
        check_choice("layout", layout, LAYOUTS)
        check_choice("target", target, ("label", "first_label"))
        check_choice("readout", readout, READOUTS)
        if confidence is not None:
            check_fraction("confidence", confidence)
            if average == "macro":
                raise refuse(
                    "confidence", "None for average='macro', no proportion", f"{confidence}"
                )
        check_real("empty_value", empty_value)
        super().__init__(**kwargs)
        self.options = self_options
        self.several = not isinstance(top_k, int)
        self.empty_value = float(empty_value)
        self.layout = layout
        self.confidence = confidence
        self.target = target
        self.readout = readout
        self.add_counts("counts", (len(self.options.top_k) + 3, GROWS))
        if average != "micro":
            classes = BY_DATA if num_classes is None else num_classes
            self.add_counts("class_counts", (len(self.options.top_k) + 1, GROWS, classes))

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        classes = ("C",) if self.options.average == "none" else ()
        names = self._names()
        axes: dict[str, tuple[str, ...]] = {overall: classes for overall, _, _ in names}
        axes.update({curve: (*classes, "T") for _, curve, _ in names})
        axes.update(valid=("T",), nonfinite=("T",))
        if self.confidence is not None:
            bounds = [bound + ending for _, _, ending in names for bound in ("low", "high")]
            axes.update(dict.fromkeys(bounds, (*classes, "T")))
        return axes

    def update(
        self, preds: Tensor | RowStatistics, target: Tensor | None, mask: Tensor | None = None
    ) -> None:
        """Count a batch: scores (B, T, C), labels (B, T) or (B,), mask (B, T) or (B,)."""
        inputs = self._inputs(preds, target, mask)
        counts, class_counts = label_counts(inputs, self.options)
        if not inputs.labels.shape[0]:
            return
        if class_counts is None:
            self.accumulate(counts=counts)
        else:
            self.accumulate(counts=counts, class_counts=class_counts)

    def _inputs(
        self, preds: Tensor | RowStatistics, target: Tensor | None, mask: Tensor | None
    ) -> Classification | RowStatistics:
        """The batch in the reading that `target` and `readout` ask for."""
        if isinstance(preds, RowStatistics):
            if self.target != "label" or self.readout != "step":
                raise refuse("preds", "scores, for this target or readout", "row statistics")
            return rows_of(preds, target, mask, layout=self.layout, ties=self.options.ties)
        inputs = temporal_inputs(preds, target, mask, layout=self.layout)
        if self.target == "first_label":
            inputs = _against_first_label(inputs, target, mask)
        return inputs if self.readout == "step" else cumulative_readout(inputs, self.readout)

    def compute(self) -> dict[str, Tensor]:
        """The curves over everything seen."""
        warn_out_of_range(self, self.counts)
        valid = self.counts[VALID]
        overall, curves, bounds = {}, {}, {}
        for i, (overall_name, curve_name, ending) in enumerate(self._names()):
            pooled, curve = self._rates(i)
            overall[overall_name] = report_empty(pooled, valid.sum(), self.empty_value)
            curves[curve_name] = curve
            if self.confidence is not None:
                low, high = self._bounds(i, self.confidence)
                bounds.update({f"low{ending}": low, f"high{ending}": high})
        return {**overall, **curves, "valid": valid, "nonfinite": self.counts[NONFINITE], **bounds}

    def _rates(self, i: int) -> tuple[Tensor, Tensor]:
        """Pooled and per timestep, for the i-th k."""
        average, absent = self.options.average, self.options.absent_classes
        valid = self.counts[VALID]
        if average == "micro":
            return ratio(self.counts[i].sum(), valid.sum()), ratio(self.counts[i], valid)
        correct, support = self.class_counts[i], self.class_counts[-1]
        pooled = class_recall(correct.sum(0), support.sum(0), valid.sum(), average, absent)
        curve = class_recall(correct, support, valid, average, absent)
        return pooled, curve.T if average == "none" else curve

    def _bounds(self, i: int, confidence: float) -> tuple[Tensor, Tensor]:
        """Wilson's interval at every timestep, for the i-th k."""
        if self.options.average != "none":
            return wilson_bounds(self.counts[i], self.counts[VALID], confidence)
        return wilson_bounds(self.class_counts[i].T, self.class_counts[-1].T, confidence)

    def _names(self) -> list[tuple[str, str, str]]:
        """For every k the names of the pooled value and the curve, and the ending of bounds."""
        if not self.several:
            return [("overall", "accuracy", "")]
        return [(f"overall_top{k}", f"top{k}", f"_top{k}") for k in self.options.top_k]


def _against_first_label(
    inputs: Classification, target: Tensor | None, mask: Tensor | None
) -> Classification:
    """Labels replaced by the first of the sample, wherever the mask lets a timestep count."""
    labels = label_inputs(target, mask, inputs.labels.shape, inputs.labels.device)
    return Classification(inputs.preds, torch.where(labels.counted, labels.first, -1))


def temporal_accuracy(
    preds: Tensor, target: Tensor, mask: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """`TemporalAccuracy` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        >>> temporal_accuracy(logits, torch.tensor([0]))["accuracy"]
        tensor([1., 0.], dtype=torch.float64)
    """
    metric = TemporalAccuracy(sync_on_compute=False, **options).to(device_of("preds", preds))
    metric.update(preds, target, mask)
    return metric.compute()


def topk_accuracy_over_time(
    preds: Tensor,
    target: Tensor,
    top_k: int | Sequence[int] = 1,
    mask: Tensor | None = None,
    *,
    layout: str = "BTC",
) -> dict[str, Tensor]:
    """The curves (T,) of top-k accuracy of one batch, one for every k: `top1`, `top5`, ...

    Inputs and undefined values as in `TemporalAccuracy`.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[[2.0, 0.0, 1.0], [0.0, 1.0, 2.0]]])
        >>> topk_accuracy_over_time(logits, torch.tensor([0]), top_k=(1, 3))["top1"]
        tensor([1., 0.], dtype=torch.float64)
    """
    ks = (top_k,) if isinstance(top_k, int) else tuple(top_k)
    results = temporal_accuracy(preds, target, mask, top_k=ks, layout=layout)
    return {f"top{k}": results[f"top{k}"] for k in ks}
