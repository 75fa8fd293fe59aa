"""Accuracy and TemporalAccuracy under all laws, against the definitions in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from dynmetrics.core import StreamingMetric
from dynmetrics.temporal import (
    Accuracy,
    TemporalAccuracy,
    accuracy,
    first_label,
    temporal_accuracy,
    topk_accuracy_over_time,
)
from dynmetrics.temporal.accuracy_counts import checked_options, label_counts
from dynmetrics.temporal.accuracy_pooled import multilabel_counts
from dynmetrics.temporal.inputs import Classification
from tests.contract import Batch, MetricContract, assert_same
from tests.reference import accuracy as definition

CLASSES = 6


def scores(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    """Integers, so that there are ties, also in half precision."""
    return torch.tensor(rng.integers(-3, 4, size=shape), dtype=torch.float64)


def temporal_batches(seed: int) -> list[Batch]:
    """T, B and the form of labels and masks differ; one batch is empty, one all masked."""
    rng = np.random.default_rng(seed)
    batches: list[Batch] = []
    for b, t in ((4, 5), (1, 3), (0, 9), (6, 7), (3, 1), (2, 8)):
        logits = scores(rng, b, t, CLASSES)
        # Label 5 is rare, label 4 absent; negative labels are masked.
        target = torch.tensor(rng.choice([-2, -1, 0, 1, 2, 3, 5], size=(b, t)))
        batches.append({"preds": logits, "target": target, "mask": None})
    batches[0]["preds"][1, 2, 3] = torch.nan
    batches[3]["preds"][0, 0] = torch.nan
    batches[3]["mask"] = torch.tensor(rng.random((6, 7)) < 0.7)
    batches[1]["target"] = torch.tensor([2])
    batches[4]["mask"] = torch.zeros(3, dtype=torch.bool)
    return batches


def as_reference(batches: list[Batch]) -> list[tuple[Any, Any, Any]]:
    return [
        (
            b["preds"].double().numpy(),
            b["target"].numpy(),
            None if b["mask"] is None else b["mask"].numpy(),
        )
        for b in batches
        if len(b["preds"])
    ]


class TemporalContract(MetricContract):
    options: ClassVar[dict[str, Any]] = {}
    depends_on_n: ClassVar[set[str]] = {
        "low",
        "high",
        "low_top1",
        "high_top1",
        "low_top4",
        "high_top4",
    }

    def make(self) -> StreamingMetric:
        return TemporalAccuracy(num_classes=CLASSES, **self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        return temporal_batches(seed)

    def reference(self, batches: list[Batch]) -> Any:
        rows = as_reference(batches)
        if not rows:
            empty = np.zeros((1, 1, CLASSES)), np.zeros((1, 1), dtype=np.int64) - 1, None
            result = definition.temporal_accuracy([empty], **self.options)
            return {
                k: v[..., :0] if np.ndim(v) and k != "overall" else v for k, v in result.items()
            }
        return definition.temporal_accuracy(rows, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        # Every guess is wrong at every k, so all counts agree after the first batch.
        wrong = {"preds": torch.tensor([[[9.0, 8, 7, 6, 5, 0]]]), "target": torch.tensor([[5]])}
        tied = {"preds": torch.zeros(1, 1, CLASSES), "target": torch.tensor([[-1]])}
        return [
            (TemporalAccuracy(top_k=1), TemporalAccuracy(top_k=5), wrong),
            (TemporalAccuracy(ties="optimistic"), TemporalAccuracy(ties="pessimistic"), tied),
            (TemporalAccuracy(), TemporalAccuracy(target="first_label"), wrong),
            (TemporalAccuracy(empty_value=0.5), TemporalAccuracy(network_output="x"), wrong),
        ]

    def bad_inputs(self) -> list[Batch]:
        logits, labels = torch.zeros(2, 3, CLASSES), torch.zeros(2, 3, dtype=torch.int64)
        return [
            {"preds": logits[0], "target": labels},
            {"preds": logits.long(), "target": labels},
            {"preds": logits[..., :0], "target": labels},
            {"preds": logits[..., :1], "target": labels},
            {"preds": logits, "target": labels[:1]},
            {"preds": logits, "target": labels[:, :2]},
            {"preds": logits, "target": labels + 0.5},
            {"preds": logits, "target": labels * torch.nan},
            {"preds": logits, "target": labels.numpy()},
            {"preds": logits, "target": None},
            {"preds": {"a": logits}, "target": labels},
            {"preds": logits, "target": labels, "mask": labels},
            {"preds": logits, "target": labels, "mask": labels[0] > 0},
            {"preds": logits.to(torch.complex64), "target": labels},
            {"preds": logits, "target": labels.to("meta")},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda option=option: TemporalAccuracy(**option)  # type: ignore[misc]
            for option in (
                {"top_k": 0}, {"top_k": ()}, {"top_k": (1, 1)}, {"top_k": 1.0}, {"top_k": True},
                {"top_k": "1"}, {"num_classes": 3, "top_k": 4}, {"num_classes": 0},
                {"average": "median"}, {"average": None}, {"absent_classes": "keep"},
                {"ties": "random"}, {"layout": "TCB"}, {"target": "last"}, {"confidence": 95},
                {"confidence": 1.0}, {"average": "macro", "confidence": 0.95}, {"typo": 1},
            )
            if "typo" not in option
        ]  # fmt: skip

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        options = checked_options(
            None,
            self.options.get("top_k", 1),
            self.options.get("average", "micro"),
            "drop",
            self.options.get("ties", "lowest_index"),
        )
        batch = self.batches()[0]
        inputs = Classification(batch["preds"], batch["target"])
        return lambda inputs: label_counts(inputs, options), [inputs]


class TestTemporalAccuracy(TemporalContract):
    options: ClassVar[dict[str, Any]] = {"confidence": 0.9}


class TestSeveralK(TemporalContract):
    options: ClassVar[dict[str, Any]] = {"top_k": (4, 1), "confidence": 0.9}


class TestMacro(TemporalContract):
    options: ClassVar[dict[str, Any]] = {"average": "macro", "top_k": 2}


class TestNoAverage(TemporalContract):
    options: ClassVar[dict[str, Any]] = {"average": "none", "ties": "optimistic", "confidence": 0.9}


class TestFirstLabel(TemporalContract):
    options: ClassVar[dict[str, Any]] = {
        "target": "first_label", "ties": "pessimistic", "average": "weighted", "empty_value": 0.25
    }  # fmt: skip


class TestAccuracyMacro(MetricContract):
    options: ClassVar[dict[str, Any]] = {"average": "macro", "top_k": 2}

    def make(self) -> StreamingMetric:
        return Accuracy(**self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        return temporal_batches(seed)

    def reference(self, batches: list[Batch]) -> Any:
        rows = as_reference(batches)
        return np.float64(definition.accuracy(rows, **self.options) if rows else 0.0)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        wrong = {"preds": torch.tensor([[[9.0, 8, 7, 6, 5, 0]]]), "target": torch.tensor([[5]])}
        return [(Accuracy(), Accuracy(top_k=5), wrong)]

    def bad_inputs(self) -> list[Batch]:
        flat, labels = torch.zeros(4, CLASSES), torch.zeros(4, dtype=torch.int64)
        return [
            {"preds": flat, "target": labels[:3]},
            {"preds": flat, "target": labels[:, None]},
            {"preds": flat, "target": flat},
            {"preds": labels, "target": labels},
            {"preds": flat[:, :5], "target": labels},
            {"preds": flat[None, None], "target": labels},
            {"preds": flat[:, :1], "target": labels},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: Accuracy(top_k=(1, 2)),  # type: ignore[arg-type]
            lambda: Accuracy(mode="multi"),
            lambda: Accuracy(mode="multilabel", top_k=2),
            lambda: Accuracy(average="samples"),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        options = checked_options(CLASSES, 2, "macro", "drop", "lowest_index")
        batch = self.batches()[0]
        inputs = Classification(batch["preds"], batch["target"])
        return lambda inputs: label_counts(inputs, options), [inputs]


class TestMultilabel(MetricContract):
    options: ClassVar[dict[str, Any]] = {"average": "weighted", "threshold": 0.25}

    def make(self) -> StreamingMetric:
        return Accuracy(mode="multilabel", **self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        batches: list[Batch] = []
        for b in (4, 1, 0, 7):
            target = torch.tensor(rng.choice([-1, 0, 1], size=(b, 3)))
            preds = torch.tensor(rng.integers(0, 5, size=(b, 3)) / 4)
            batches.append({"preds": preds, "target": target, "mask": None})
        batches[0]["preds"][0, 0] = torch.nan
        batches[3]["mask"] = torch.tensor(rng.random(7) < 0.6)
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        return np.float64(definition.multilabel_accuracy(as_reference(batches), **self.options))

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        sure = {"preds": torch.ones(2, 3), "target": torch.ones(2, 3, dtype=torch.int64)}
        one = Accuracy(mode="multilabel", threshold=0.2)
        return [(one, Accuracy(mode="multilabel", threshold=0.6), sure)]

    def bad_inputs(self) -> list[Batch]:
        preds, target = torch.zeros(4, 3), torch.zeros(4, 3, dtype=torch.int64)
        return [
            {"preds": preds, "target": target[:, 0]},
            {"preds": preds[:, 0], "target": target[:, 0]},
            {"preds": preds, "target": target + 0.5},
            {"preds": preds[:, :2], "target": target[:, :2]},
            {"preds": preds, "target": target, "mask": target},
            {"preds": preds, "target": target, "mask": target[:2] > 0},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: Accuracy(mode="multilabel", num_classes=-1)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        batch = self.batches()[0]
        return multilabel_counts, [batch["preds"], batch["target"], None, 0.25]


# ------------------------------------------------------------------------- what laws do not say


@pytest.mark.parametrize("absent", ["drop", "zero", "nan"])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "none"])
@pytest.mark.parametrize("ties", ["lowest_index", "optimistic", "pessimistic"])
@pytest.mark.parametrize("target", ["label", "first_label"])
@pytest.mark.parametrize("top_k", [1, 3, (1, 2, 6)])
def test_every_option_against_the_definition(
    absent: str, average: str, ties: str, target: str, top_k: Any
) -> None:
    options = {
        "absent_classes": absent, "average": average, "ties": ties, "target": target, "top_k": top_k
    }  # fmt: skip
    metric = TemporalAccuracy(**options)
    batches = temporal_batches(seed=1)
    for batch in batches:
        metric.update(**batch)
    expected = definition.temporal_accuracy(as_reference(batches), **options)
    assert_same(metric.compute(), expected, 1e-12)


@pytest.mark.parametrize("layout", ["BTC", "BCT", "TBC"])
def test_layouts(layout: str) -> None:
    logits = torch.randn(4, 4, 4, dtype=torch.float64)
    labels = torch.randint(-1, 4, (4, 4))
    expected = temporal_accuracy(logits, labels, top_k=2)
    moved = logits.permute(["BTC".index(axis) for axis in layout])
    assert_same(temporal_accuracy(moved, labels, top_k=2, layout=layout), expected, 0.0)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.float32, torch.float16])
def test_labels_of_any_type_that_holds_whole_numbers(dtype: torch.dtype) -> None:
    logits, labels = torch.randn(3, 4, 5), torch.randint(0, 5, (3, 4))
    assert_same(temporal_accuracy(logits, labels.to(dtype)), temporal_accuracy(logits, labels), 0.0)


def test_class_indices() -> None:
    guesses = torch.tensor([[0, 1, 2], [2, 2, 0]])
    labels = torch.tensor([[0, 2, 2], [2, -1, 1]])
    assert float(accuracy(guesses, labels)) == 3 / 5
    assert float(accuracy(guesses[:, 0], labels[:, 0])) == 1.0
    by_class = accuracy(guesses, labels, average="none", num_classes=4)
    torch.testing.assert_close(
        by_class, torch.tensor([1.0, 0.0, 2 / 3, torch.nan], dtype=torch.float64), equal_nan=True
    )
    assert temporal_accuracy(guesses, labels)["accuracy"].tolist() == [1.0, 0.0, 0.5]
    with pytest.raises(ValueError, match="num_classes: expected"):
        accuracy(guesses, labels, average="macro")
    with pytest.raises(ValueError, match="scores, for top_k"):
        temporal_accuracy(guesses, labels, top_k=2)


def test_labels_beyond_the_classes_warn_once_and_count_as_wrong() -> None:
    metric = TemporalAccuracy()
    metric.update(torch.zeros(2, 1, 3), torch.tensor([0, 3]))
    with pytest.warns(UserWarning, match="1 labels were not below"):
        result = metric.compute()
    assert result["accuracy"].tolist() == [0.5]
    assert result["valid"].tolist() == [2]
    metric.update(torch.zeros(2, 1, 3), torch.tensor([0, 99]))
    assert metric.compute()["accuracy"].tolist() == [0.5]
    macro = TemporalAccuracy(average="macro")
    macro.update(torch.zeros(2, 1, 3), torch.tensor([0, 3]))
    with pytest.warns(UserWarning, match="1 labels"):
        assert float(macro.compute()["overall"]) == 1.0


def test_multilabel_targets_above_one_are_wrong() -> None:
    metric = Accuracy(mode="multilabel")
    metric.update(torch.ones(1, 2), torch.tensor([[1, 2]]))
    with pytest.warns(UserWarning, match="1 labels"):
        assert float(metric.compute()) == 0.5


def test_the_mean_of_batches_is_not_the_value() -> None:
    metric = Accuracy()
    right, wrong = torch.tensor([[[1.0, 0.0]]]), torch.tensor([[[0.0, 1.0]]])
    batches = [
        (right.expand(2, 3, 2), torch.zeros(2, dtype=torch.int64)),
        (wrong, torch.tensor([0])),
        (wrong.expand(4, 3, 2), torch.full((4,), -1)),
    ]
    means = []
    for logits, labels in batches:
        means.append(float(metric(logits, labels)))
    assert sum(m * len(x) for m, (x, _) in zip(means, batches, strict=True)) / 7 == 2 / 7
    assert float(metric.compute()) == 6 / 7


def test_accuracy_grows_with_k_and_ends_at_one() -> None:
    logits, labels = torch.randn(20, 3, 7), torch.randint(0, 7, (20, 3))
    logits[:5] = logits[:5].round()
    curves = topk_accuracy_over_time(logits, labels, top_k=tuple(range(1, 8)))
    stacked = torch.stack(list(curves.values()))
    assert (stacked.diff(dim=0) >= 0).all()
    assert (stacked[-1] == 1).all()
    with pytest.raises(ValueError, match="top_k: expected at most the 7 classes"):
        topk_accuracy_over_time(logits, labels, top_k=8)


def test_infinite_scores_are_scores() -> None:
    logits = torch.tensor([[[-torch.inf, 0.0, torch.inf]], [[-torch.inf, -torch.inf, -torch.inf]]])
    result = temporal_accuracy(logits, torch.tensor([2, 0]))
    assert result["accuracy"].tolist() == [1.0]
    assert result["nonfinite"].tolist() == [0]


def test_many_rows_are_counted_in_chunks() -> None:
    logits = torch.randint(0, 50, (40, 9, 2000)).float()
    labels = torch.randint(0, 2000, (40, 9))
    several = topk_accuracy_over_time(logits, labels, top_k=(1, 300))
    argmax = (logits.argmax(-1) == labels).double().mean(0)
    torch.testing.assert_close(several["top1"], argmax)
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    best = (order[..., :300] == labels[..., None]).any(-1).double().mean(0)
    torch.testing.assert_close(several["top300"], best)


def test_functions_need_no_other_rank() -> None:
    logits, labels = torch.randn(2, 3, 4), torch.zeros(2, dtype=torch.int64)
    metric = TemporalAccuracy(distributed_available_fn=lambda: True, sync_on_compute=False)
    metric.update(logits, labels)
    assert_same(metric.compute(), temporal_accuracy(logits, labels), 0.0)


def test_first_label_holds() -> None:
    labels = torch.tensor([[-1, 3, 5], [-4, -1, -1], [0, -1, 2]])
    assert first_label(labels).tolist() == [[3, 3, 3], [-4, -4, -4], [0, 0, 0]]
    with pytest.raises(ValueError, match=r"labels: expected the shape \(B, T\)"):
        first_label(labels[0])


def test_a_compiled_kernel_does_not_compile_for_every_batch() -> None:
    options = checked_options(None, (1, 3), "micro", "drop", "lowest_index")
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(
        lambda s, y: label_counts(Classification(s, y), options)[0], backend=counter
    )
    for step in range(20):
        compiled(torch.randn(4 + step, 5, 6), torch.zeros(4 + step, 5, dtype=torch.int64))
    assert counter.frame_count <= 2
