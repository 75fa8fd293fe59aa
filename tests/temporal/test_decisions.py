"""Calibration, confusion, class scores, flips, latencies and reaction times under all laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.core import StreamingMetric
from dynmetrics.core.numerics import histogram_median
from dynmetrics.temporal import (
    AreaUnderAccuracy,
    DecisionLatency,
    FlipRate,
    ReactionTime,
    TemporalCalibrationError,
    TemporalConfusion,
    TemporalFScore,
    TemporalPrecision,
    TemporalRecall,
    row_statistics,
    temporal_accuracy,
    temporal_confusion,
    temporal_precision,
)
from dynmetrics.temporal.answers import answers_of
from dynmetrics.temporal.area import area_under_curve
from dynmetrics.temporal.calibration import calibration_bins
from dynmetrics.temporal.class_scores import class_score_counts
from dynmetrics.temporal.confusion import confusion_counts
from dynmetrics.temporal.flips import flip_counts
from dynmetrics.temporal.inputs import Classification
from dynmetrics.temporal.latency import latency_counts
from dynmetrics.temporal.reaction import answers_at_threshold, evidence_of
from tests.contract import Batch, MetricContract, assert_same
from tests.reference import accuracy as accuracy_definition
from tests.reference import decisions as definition
from tests.reference import row_values
from tests.temporal.batches import CLASSES, as_arrays, bad_inputs, logits_and_labels, refused

ALIKE: Batch = {"preds": torch.tensor([[[0.1, 0, 0, 0, 0, 0]]]), "target": torch.tensor([[-1]])}
"""A batch that changes no state of any metric here but its length."""


class ScoresContract(MetricContract):
    options: ClassVar[dict[str, Any]] = {}
    wrong_options: ClassVar[list[dict[str, Any]]] = []
    cls: ClassVar[Any] = None
    half_atol: ClassVar[float] = 2e-6
    nan: ClassVar[bool] = True
    integer: ClassVar[bool] = True

    def make(self) -> StreamingMetric:
        metric: StreamingMetric = self.cls(**self.options)
        return metric

    def batches(self, seed: int = 0) -> list[Batch]:
        return logits_and_labels(seed, nan=self.nan, integer=self.integer)

    def bad_inputs(self) -> list[Batch]:
        return bad_inputs()

    def bad_options(self) -> list[Callable[[], Any]]:
        return refused(self.cls, {"layout": "TCB"}, *self.wrong_options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        return [(self.make(), self.cls(**self.options, network_output="x"), ALIKE)]

    def inputs(self) -> Classification:
        batch = self.batches()[0]
        return Classification(batch["preds"], batch["target"])


# ---------------------------------------------------------------------------- calibration


class TestCalibration(ScoresContract):
    cls: ClassVar[Any] = TemporalCalibrationError
    options: ClassVar[dict[str, Any]] = {"n_bins": 7}
    integer: ClassVar[bool] = False
    wrong_options: ClassVar[list[dict[str, Any]]] = [{"n_bins": 0}, {"n_bins": 2.0}, {"norm": "l3"}]

    def reference(self, batches: list[Batch]) -> Any:
        return row_values.temporal_calibration_error(as_arrays(batches), **self.options)

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        batch = self.batches()[0]
        return lambda x, y: calibration_bins(row_statistics(x, y), 7), [
            batch["preds"],
            batch["target"],
        ]


class TestCalibrationOfTheWorstBin(TestCalibration):
    options: ClassVar[dict[str, Any]] = {"n_bins": 4, "norm": "max"}
    nan: ClassVar[bool] = False


class TestCalibrationOfSquares(TestCalibration):
    options: ClassVar[dict[str, Any]] = {"norm": "l2"}
    nan: ClassVar[bool] = False


# ---------------------------------------------------------------------------- confusion


@pytest.mark.filterwarnings("ignore:TemporalConfusion. .* labelled rows")
class TestConfusion(ScoresContract):
    cls: ClassVar[Any] = TemporalConfusion
    optout: ClassVar[dict[str, str]] = {"counts_beyond_float32": "the result itself is a count"}
    options: ClassVar[dict[str, Any]] = {"num_classes": CLASSES}
    wrong_options: ClassVar[list[dict[str, Any]]] = [{"num_classes": 0}]

    def reference(self, batches: list[Batch]) -> Any:
        return definition.temporal_confusion(as_arrays(batches), CLASSES)

    def bad_inputs(self) -> list[Batch]:
        return [
            *bad_inputs(),
            {"preds": torch.zeros(2, 3, 5), "target": torch.zeros(2, dtype=torch.long)},
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return lambda x: confusion_counts(x, CLASSES), [self.inputs()]


# ---------------------------------------------------------------------------- class scores


class ClassScoreContract(ScoresContract):
    entry: ClassVar[str] = ""
    wrong_options: ClassVar[list[dict[str, Any]]] = [
        {"num_classes": 0}, {"average": "median"}, {"absent_classes": "keep"},
    ]  # fmt: skip

    def make(self) -> StreamingMetric:
        metric: StreamingMetric = self.cls(num_classes=CLASSES, **self.options)
        return metric

    def reference(self, batches: list[Batch]) -> Any:
        rows = as_arrays(batches)
        return definition.temporal_class_score(rows, self.entry, CLASSES, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        return [(self.make(), self.cls(num_classes=CLASSES), ALIKE)]

    def bad_inputs(self) -> list[Batch]:
        return [
            *bad_inputs(),
            {"preds": torch.zeros(2, 3, 5), "target": torch.zeros(2, dtype=torch.long)},
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return lambda x: class_score_counts(x, CLASSES), [self.inputs()]


class TestPrecision(ClassScoreContract):
    cls: ClassVar[Any] = TemporalPrecision
    entry: ClassVar[str] = "precision"
    options: ClassVar[dict[str, Any]] = {"average": "macro"}


class TestRecall(ClassScoreContract):
    cls: ClassVar[Any] = TemporalRecall
    entry: ClassVar[str] = "recall"
    options: ClassVar[dict[str, Any]] = {"average": "none", "absent_classes": "zero"}


class TestFScore(ClassScoreContract):
    cls: ClassVar[Any] = TemporalFScore
    entry: ClassVar[str] = "fscore"
    options: ClassVar[dict[str, Any]] = {"average": "weighted", "beta": 2.0}
    wrong_options: ClassVar[list[dict[str, Any]]] = [
        {"beta": 0},
        {"beta": "1"},
        {"beta": torch.inf},
    ]


@pytest.mark.parametrize("absent", ["drop", "zero", "nan"])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "none"])
@pytest.mark.parametrize(
    ("cls", "kind"),
    [(TemporalPrecision, "precision"), (TemporalRecall, "recall"), (TemporalFScore, "fscore")],
)
def test_every_average_against_the_definition(
    cls: Any, kind: str, average: str, absent: str
) -> None:
    metric = cls(average=average, absent_classes=absent)
    batches = logits_and_labels(seed=1, nan=True, integer=True)
    for batch in batches:
        metric.update(**batch)
    rows = as_arrays(batches)
    expected = definition.temporal_class_score(rows, kind, CLASSES, average, absent)
    assert_same(metric.compute(), expected, 1e-12)


# ---------------------------------------------------------------------------- flips


class TestFlips(ScoresContract):
    cls: ClassVar[Any] = FlipRate
    wrong_options: ClassVar[list[dict[str, Any]]] = [{"average": "macro"}]

    def reference(self, batches: list[Batch]) -> Any:
        return definition.flip_rate(as_arrays(batches), **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        return [(FlipRate(), FlipRate(average="pooled"), ALIKE)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return flip_counts, [self.inputs()]


class TestPooledFlips(TestFlips):
    options: ClassVar[dict[str, Any]] = {"average": "pooled"}


# ---------------------------------------------------------------------------- latency


class TestStableLatency(ScoresContract):
    cls: ClassVar[Any] = DecisionLatency
    wrong_options: ClassVar[list[dict[str, Any]]] = [{"kind": "last"}]

    def reference(self, batches: list[Batch]) -> Any:
        return definition.decision_latency(as_arrays(batches), **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        return [(DecisionLatency(), DecisionLatency(kind="first_correct"), ALIKE)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        batch = self.batches()[0]
        return (
            lambda x, y: latency_counts(answers_of(x, y, None, "BTC"), "stable"),
            [batch["preds"], batch["target"]],
        )


class TestFirstCorrect(TestStableLatency):
    options: ClassVar[dict[str, Any]] = {"kind": "first_correct"}


@pytest.mark.parametrize("counts", [[0, 3], [1, 1], [2, 0, 1, 1], [1, 0, 0, 1], [0, 0, 5, 4], [0]])
def test_median_of_a_histogram(counts: list[int]) -> None:
    values = [t for t, n in enumerate(counts) for _ in range(n)]
    expected = float(np.median(values)) if values else torch.nan
    assert_same(histogram_median(torch.tensor(counts)), expected, 0.0)


# ---------------------------------------------------------------------------- reaction time


class TestReactionTime(ScoresContract):
    cls: ClassVar[Any] = ReactionTime
    options: ClassVar[dict[str, Any]] = {"threshold": 0.6}
    integer: ClassVar[bool] = False
    wrong_options: ClassVar[list[dict[str, Any]]] = [
        {"threshold": 0.0}, {"threshold": 1.1}, {"threshold": "high"}, {"measure": "margin"},
        {"measure": "entropy", "threshold": -0.1},
    ]  # fmt: skip

    def reference(self, batches: list[Batch]) -> Any:
        return definition.reaction_time(as_arrays(batches), **self.options)

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        measure = self.options.get("measure", "confidence")

        def function(preds: Tensor, target: Tensor) -> Any:
            rows, evidence = evidence_of(preds, target, None, measure, "BTC")
            return answers_at_threshold(rows, evidence, 0.6, measure)

        batch = self.batches()[0]
        return function, [batch["preds"], batch["target"]]


class TestReactionTimeByEntropy(TestReactionTime):
    options: ClassVar[dict[str, Any]] = {"threshold": 1.0, "measure": "entropy"}


# ---------------------------------------------------------------------------- area


class TestArea(ScoresContract):
    cls: ClassVar[Any] = AreaUnderAccuracy
    wrong_options: ClassVar[list[dict[str, Any]]] = [{"top_k": (1, 2)}, {"top_k": 0}]

    def reference(self, batches: list[Batch]) -> Any:
        rows = [row for row in as_arrays(batches) if len(row[0])]
        if not rows:
            return np.float64(np.nan)
        curve = accuracy_definition.temporal_accuracy(rows)["accuracy"]
        return np.float64(definition.area_under_curve(curve))

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        batch = self.batches()[0]
        return lambda x, y: answers_of(x, y, None, "BTC"), [batch["preds"], batch["target"]]


# ---------------------------------------------------------------------------- what laws do not say


@pytest.mark.parametrize(
    "make",
    [
        TemporalCalibrationError,
        DecisionLatency,
        lambda: DecisionLatency(kind="first_correct"),
        lambda: ReactionTime(threshold=0.5),
        lambda: AreaUnderAccuracy(top_k=2),
    ],
)
def test_row_statistics_give_what_logits_give(make: Callable[[], Any]) -> None:
    shared, alone = make(), make()
    for batch in logits_and_labels(nan=True):
        shared.update(row_statistics(**batch), None)
        alone.update(**batch)
    assert_same(shared.compute(), alone.compute(), 0.0)


def test_entropy_needs_the_logits() -> None:
    rows = row_statistics(torch.zeros(1, 2, 3), torch.tensor([0]))
    with pytest.raises(ValueError, match="preds: expected scores"):
        ReactionTime(measure="entropy").update(rows, None)


@pytest.mark.parametrize("layout", ["BTC", "BCT", "TBC"])
@pytest.mark.parametrize(
    "cls",
    [AreaUnderAccuracy, DecisionLatency, FlipRate, ReactionTime, TemporalCalibrationError,
     TemporalConfusion, TemporalFScore],
)  # fmt: skip
def test_layouts(cls: Any, layout: str) -> None:
    logits, labels = torch.randn(4, 4, 4, dtype=torch.float64), torch.randint(-1, 4, (4, 4))
    plain, moved = cls(), cls(layout=layout)
    plain.update(logits, labels)
    moved.update(logits.permute(["BTC".index(axis) for axis in layout]), labels)
    assert_same(moved.compute(), plain.compute(), 1e-12)


def test_labels_beyond_the_classes_are_wrong_and_said_once() -> None:
    logits, labels = torch.zeros(2, 1, 3), torch.tensor([0, 3])
    for cls in (TemporalCalibrationError, TemporalRecall, DecisionLatency, ReactionTime):
        metric = cls()
        metric.update(logits, labels)
        with pytest.warns(UserWarning, match="1 labels were not below"):
            metric.compute()
        metric.update(logits, labels)
        metric.compute()
    confusion = TemporalConfusion()
    confusion.update(logits, labels)
    with pytest.warns(UserWarning, match="1 labelled rows have no place"):
        assert int(confusion.compute().sum()) == 1


def test_class_indices() -> None:
    guesses, labels = torch.tensor([[0, 1, 2], [2, 9, 0]]), torch.tensor([[0, 2, 2], [2, 1, -1]])
    assert temporal_precision(guesses, labels, num_classes=3)["precision"].tolist() == [
        1.0,
        0.0,
        1.0,
    ]
    with pytest.raises(ValueError, match="num_classes: expected a number"):
        temporal_precision(guesses, labels)
    with pytest.warns(UserWarning, match="1 labelled rows"):
        assert temporal_confusion(guesses, labels, num_classes=3).sum((1, 2)).tolist() == [2, 1, 1]
    latency = DecisionLatency()
    latency.update(guesses, labels)
    assert latency.compute()["histogram"].tolist() == [0, 0, 1]


def test_confusion_counts_beyond_float32() -> None:
    metric = TemporalConfusion(num_classes=2)
    metric.update(torch.tensor([[0]]), torch.tensor([0]))
    for _ in range(26):
        metric.merge_state(metric.clone())
    metric.update(torch.tensor([[0]]), torch.tensor([0]))
    assert int(metric.compute()[0, 0, 0]) == 2**26 + 1


def test_confusion_agrees_with_accuracy() -> None:
    logits, labels = torch.randn(9, 4, 5), torch.randint(-1, 5, (9, 4))
    matrix = temporal_confusion(logits, labels).double()
    diagonal = matrix.diagonal(dim1=1, dim2=2).sum(1) / matrix.sum((1, 2))
    torch.testing.assert_close(diagonal, temporal_accuracy(logits, labels)["accuracy"])


def test_calibration_bins_are_closed_on_the_right() -> None:
    metric = TemporalCalibrationError(n_bins=2)
    # Confidence 0.5 belongs to (0, 0.5], 0.75 to (0.5, 1].
    logits = torch.tensor([[[0.0, 0.0]], [[3.0, 1.0]]], dtype=torch.float64).log()
    logits[0] = 0
    metric.update(logits, torch.tensor([1, 0]))
    assert metric.counts[0].tolist() == [[1, 1]]
    torch.testing.assert_close(float(metric.compute()["overall"]), 0.5 * 0.5 + 0.5 * 0.25)


@pytest.mark.parametrize(
    "curve",
    [[torch.nan, 0.0, 1.0, torch.nan], [0.2, torch.nan, torch.nan, 0.8], [0.5], [torch.nan]],
)
def test_area_spans_the_defined_timesteps(curve: list[float]) -> None:
    given = torch.tensor(curve, dtype=torch.float64)
    expected = definition.area_under_curve(curve)
    assert_same(area_under_curve(given), expected, 1e-12)
    assert_same(area_under_curve(torch.stack([given, given])), np.array([expected] * 2), 1e-12)
