"""TemporalConfidence, and the pass over the scores that metrics of single rows share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.core import MetricSuite, StreamingMetric
from dynmetrics.temporal import (
    TemporalAccuracy,
    TemporalConfidence,
    confidence_over_time,
    confidences,
    first_label,
    row_statistics,
    temporal_accuracy,
)
from dynmetrics.temporal.confidence import confidence_statistics
from tests.contract import Batch as Inputs
from tests.contract import MetricContract, assert_same
from tests.golden_cases import (
    ROUTES,
    Batch,
    Case,
    collate,
    feed,
    samples_of,
    temporal_case,
    temporal_cases,
)
from tests.memory import TensorMemory
from tests.reference import row_values as definition
from tests.temporal.batches import CLASSES, as_arrays, bad_inputs, logits_and_labels, refused


class ConfidenceContract(MetricContract):
    options: ClassVar[dict[str, Any]] = {}
    nan: ClassVar[bool] = True
    half_atol: ClassVar[float] = 2e-6
    depends_on_n: ClassVar[set[str]] = {"guess_std", "label_std", "first_label_std"}

    def make(self) -> StreamingMetric:
        return TemporalConfidence(**self.options)

    def batches(self, seed: int = 0) -> list[Inputs]:
        return logits_and_labels(seed, nan=self.nan)

    def reference(self, batches: list[Inputs]) -> Any:
        return definition.temporal_confidence(as_arrays(batches), **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Inputs]]:
        alike = {"preds": torch.zeros(1, 1, CLASSES), "target": torch.tensor([[0]])}
        guess, label = TemporalConfidence(kinds=("guess",)), TemporalConfidence(kinds=("label",))
        skip = TemporalConfidence(invalid="skip")
        return [(guess, label, alike), (TemporalConfidence(), skip, alike)]

    def bad_inputs(self) -> list[Inputs]:
        rows = row_statistics(torch.zeros(2, 3, CLASSES), torch.zeros(2, dtype=torch.int64))
        return [
            *bad_inputs(),
            {
                "preds": torch.zeros(2, 3, dtype=torch.int64),
                "target": torch.zeros(2, dtype=torch.int64),
            },
            {"preds": rows, "target": rows.labels},
            {"preds": rows, "target": None, "mask": rows.counted},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return refused(
            TemporalConfidence, {"kinds": ()}, {"kinds": ("guess", "guess")}, {"kinds": "best"},
            {"layout": "TCB"}, {"invalid": "drop"}, {"num_classes": 0},
        )  # fmt: skip

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        def function(preds: Tensor, target: Tensor, mask: Tensor | None) -> Any:
            rows = row_statistics(preds, target, mask)
            groups = self.options.get("num_classes")
            return confidence_statistics(rows, ("guess", "label", "first_label"), "zero", groups)

        batch = self.batches()[3]
        return function, [batch["preds"], batch["target"], batch["mask"]]


class TestConfidence(ConfidenceContract):
    pass


class TestSkipped(ConfidenceContract):
    options: ClassVar[dict[str, Any]] = {
        "invalid": "skip",
        "kinds": ("first_label", "label"),
        "details": True,
    }
    nan: ClassVar[bool] = False


class TestClassTable(ConfidenceContract):
    options: ClassVar[dict[str, Any]] = {"num_classes": CLASSES, "details": True}

    def bad_inputs(self) -> list[Inputs]:
        fewer = {
            "preds": torch.zeros(2, 3, CLASSES - 1),
            "target": torch.zeros(2, dtype=torch.int64),
        }
        return [*super().bad_inputs(), fewer]


# ---------------------------------------------------------------------------- golden values

CONF = temporal_cases("conf")
TABLE = temporal_case("table__class_by_time")
conf_case = pytest.mark.parametrize("case", CONF, ids=str)


def golden_batches(case: Case) -> list[Batch]:
    """Logits, labels, and which timesteps are data."""
    batches: list[Batch] = []
    for batch in case.inputs["batches"]:
        labels = torch.tensor(batch["labels"])
        batches.append((torch.tensor(batch["logits"]), labels, torch.ones_like(labels)))
    return batches


class Padded(TemporalConfidence):
    """Leaves out what pads short samples; without a mask it would count as rows without a label."""

    def update(self, preds: Any, target: Any, mask: Any = None) -> None:
        super().update(preds, target, mask > 0)


@conf_case
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("invalid", "key"), [("zero", "incl_zeros"), ("skip", "valid_only")])
def test_golden_curves(case: Case, route: str, invalid: str, key: str) -> None:
    batches = golden_batches(case)
    metric = feed(partial(Padded, invalid=invalid, details=True), batches, route)
    check_curves(case, metric.compute(), key)


@conf_case
@pytest.mark.parametrize(("invalid", "key"), [("zero", "incl_zeros"), ("skip", "valid_only")])
def test_golden_curves_of_the_function(case: Case, invalid: str, key: str) -> None:
    logits, labels, present = collate(samples_of(golden_batches(case)))
    result = confidence_over_time(logits, labels, present > 0, invalid=invalid, details=True)
    check_curves(case, result, key)


def check_curves(case: Case, result: dict[str, Tensor], key: str) -> None:
    expected = case.expected["per_timestep"]
    case.check(result["guess"], expected["guess_mean"])
    case.check(result["label"], expected[f"label_mean_{key}"])
    case.check(result["first_label"], expected[f"first_label_mean_{key}"])
    assert result["valid"].tolist() == expected["n_valid"]
    assert result["guess_n"].tolist() == expected["n"]
    n = expected["n"] if key == "incl_zeros" else expected["n_with_label"]
    assert result["first_label_n"].tolist() == n


@conf_case
def test_golden_rows(case: Case) -> None:
    for batch, expected in zip(case.inputs["batches"], case.expected["per_batch"], strict=True):
        logits, labels = torch.tensor(batch["logits"]), torch.tensor(batch["labels"])
        rows = confidences(logits, labels)
        case.check(rows["guess"], expected["guess_confidence"])
        case.check(rows["label"], expected["label_confidence"])
        case.check(rows["first_label"], expected["first_label_confidence"])
        assert first_label(labels)[:, 0].tolist() == expected["first_label_index"]
        overall = confidence_over_time(logits, labels)
        case.check(overall["overall_guess"], expected["dynvision_mean_guess"])
        case.check(
            overall["overall_first_label"], expected["dynvision_mean_first_label_incl_zeros"]
        )
        case.check(overall["overall_label"], expected["mean_label_incl_zeros"])


def table_batch() -> tuple[Tensor, Tensor, Tensor]:
    """Logits of two levels whose softmax gives every row the stated guess and its confidence."""
    rows = TABLE.inputs["rows"]
    samples = 1 + max(row["sample_index"] for row in rows)
    steps = 1 + max(row["times_index"] for row in rows)
    probabilities = torch.zeros(samples, steps, 8, dtype=torch.float64)
    labels = torch.zeros(samples, steps, dtype=torch.int64)
    for row in rows:
        at = row["sample_index"], row["times_index"]
        probabilities[at] = (1 - row["guess_confidence"]) / 7
        probabilities[(*at, row["guess_index"])] = row["guess_confidence"]
        labels[at] = row["label_index"]
    return (
        probabilities.log(),
        labels,
        torch.tensor([r["guess_index"] for r in rows]).reshape(samples, steps),
    )


@pytest.mark.parametrize("route", ROUTES)
def test_golden_class_table(route: str) -> None:
    logits, labels, guesses = table_batch()
    make = partial(TemporalConfidence, kinds="guess", num_classes=8, details=True)
    result = feed(make, [(logits, labels)], route).compute()
    by_class: dict[str, Any] = {"num_classes": 8, "average": "none", "target": "first_label"}
    metric = feed(partial(TemporalAccuracy, **by_class), [(guesses, labels)], route)
    accuracy = metric.compute()["accuracy"]
    assert first_label(labels)[:, 0].tolist() == TABLE.expected["first_label_index"]
    for entry in TABLE.expected["class_by_time"]:
        group, t = entry["first_label_index"], entry["times_index"]
        if group < 0:
            TABLE.check(result["guess_no_class"][t], entry["guess_confidence_avg"])
            continue
        n, rate = entry["n"], accuracy[group, t]
        assert int(result["guess_n"][group, t]) == n
        TABLE.check(result["guess"][group, t], entry["guess_confidence_avg"])
        TABLE.check(result["guess_std"][group, t], entry["guess_confidence_std"])
        TABLE.check(rate, entry["accuracy_avg"])
        # A proportion has its deviation in itself.
        TABLE.check(
            (n * rate * (1 - rate) / (n - 1 if n > 1 else torch.nan)).sqrt(), entry["accuracy_std"]
        )


@pytest.mark.parametrize("route", ROUTES)
def test_golden_two_accuracies(route: str) -> None:
    _, labels, guesses = table_batch()
    for target, key in (
        ("label", "accuracy_t_masked_labels"),
        ("first_label", "accuracy_t_first_label_every_step"),
    ):
        metric = feed(partial(TemporalAccuracy, target=target), [(guesses, labels)], route)
        TABLE.check(metric.compute()["accuracy"], TABLE.expected[key])


# ---------------------------------------------------------------------------- the shared pass


@pytest.mark.parametrize("ties", ["lowest_index", "optimistic", "pessimistic"])
@pytest.mark.parametrize("classes", [2, 10, 31, 32, 100, 300])
@pytest.mark.parametrize("layout", ["BTC", "BCT", "TBC"])
def test_ranks_are_those_of_a_stable_sort(ties: str, classes: int, layout: str) -> None:
    rng = np.random.default_rng(classes)
    for levels in (2, 7, 10**6):
        scores = rng.integers(levels, size=(40, 9, classes)).astype(np.float32)
        labels = rng.integers(-1, classes, size=(40, 9))
        given = torch.tensor(scores).permute(["BTC".index(axis) for axis in layout])
        rows = row_statistics(given, torch.tensor(labels), layout=layout, ties=ties)
        own = np.take_along_axis(scores, labels.clip(0)[..., None], -1)
        before = np.arange(classes) < labels[..., None]
        tied = {"lowest_index": before, "optimistic": False, "pessimistic": True}[ties] & (
            scores == own
        )
        expected = (scores > own).sum(-1) + tied.sum(-1) - (ties == "pessimistic")
        known = labels >= 0
        np.testing.assert_array_equal(rows.rank.numpy()[known], expected[known])
        best = np.argmax(scores, -1) == labels
        if ties == "lowest_index":
            np.testing.assert_array_equal(rows.hits().numpy(), best)


def test_many_rows_are_read_in_chunks() -> None:
    logits = torch.randn(40, 9, 2000)
    labels = torch.randint(0, 2000, (40, 9))
    rows = row_statistics(logits, labels)
    logs = torch.log_softmax(logits.double(), -1)
    order = logits.sort(dim=-1, descending=True, stable=True).indices
    torch.testing.assert_close(
        rows.rank, (order == labels.unsqueeze(-1)).to(torch.uint8).argmax(-1)
    )
    torch.testing.assert_close(rows.log_guess.double(), logs.amax(-1), atol=1e-5, rtol=1e-6)
    own = logs.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(rows.log_label.double(), own, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("classes", [5, 400])
def test_half_precision_ranks_are_exact_and_confidences_close(
    dtype: torch.dtype, classes: int
) -> None:
    logits = (torch.randn(8, 5, classes) * 3).to(dtype)
    labels = torch.randint(0, classes, (8, 5))
    half, full = row_statistics(logits, labels), row_statistics(logits.double(), labels)
    assert torch.equal(half.rank, full.rank)
    for ours, theirs in zip(half[4:7], full[4:7], strict=True):
        assert isinstance(ours, Tensor)
        torch.testing.assert_close(ours.exp().double(), theirs.exp(), atol=2e-6, rtol=0)


def test_rows_with_nan_or_infinity() -> None:
    logits = torch.tensor([[[torch.nan, 0.0], [torch.inf, 0.0], [-torch.inf, 0.0]]])
    rows = row_statistics(logits, torch.tensor([0]))
    assert rows.nonfinite.tolist() == [[True, False, False]]
    assert rows.hits().tolist() == [[False, True, False]]
    assert rows.log_guess.exp().isnan().tolist() == [[True, True, False]]
    assert float(rows.log_guess[0, 2]) == 0.0


def test_one_pass_serves_several_metrics_of_a_suite() -> None:
    batches = logits_and_labels(nan=True)
    suite = MetricSuite(
        {"accuracy": TemporalAccuracy(top_k=(1, 3)), "confidence": TemporalConfidence()}
    )
    alone = suite.clone()
    for batch in batches:
        rows = row_statistics(**batch)
        suite.update(preds=rows, target=None)
        alone.update(**batch)
    assert_same(suite.compute(), alone.compute(), 0.0)


def test_shared_rows_must_fit_the_metric() -> None:
    logits, labels = torch.zeros(2, 3, 4), torch.zeros(2, 3, dtype=torch.int64)
    rows = row_statistics(logits, labels, ties="optimistic")
    TemporalConfidence().update(rows, None)
    TemporalAccuracy(ties="optimistic").update(rows, None)
    for metric in (TemporalAccuracy(), TemporalAccuracy(ties="optimistic", target="first_label"),
                   TemporalAccuracy(ties="optimistic", num_classes=5)):  # fmt: skip
        with pytest.raises(ValueError, match="preds: expected"):
            metric.update(rows, None)
    with pytest.raises(ValueError, match="top_k: expected"):
        TemporalAccuracy(ties="optimistic", top_k=5).update(rows, None)


def test_gradients_flow_through_the_function() -> None:
    logits = torch.randn(2, 3, 4, requires_grad=True)
    row_statistics(logits, torch.zeros(2, dtype=torch.int64)).log_label.sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad.sum(-1), torch.zeros(2, 3), atol=1e-6, rtol=0)


@pytest.mark.parametrize("readout", ["cumulative", "cumulative_probabilities"])
def test_cumulative_readout_sums_labelled_timesteps(readout: str) -> None:
    logits = torch.randn(5, 6, 4, dtype=torch.float64)
    labels = torch.randint(-1, 4, (5, 6))
    result = temporal_accuracy(logits, labels, readout=readout)
    hits, valid = np.zeros(6), np.zeros(6)
    for b in range(5):
        evidence = np.zeros(4)
        for t in range(6):
            if labels[b, t] < 0:
                continue
            scores = logits[b, t].tolist()
            evidence += scores if readout == "cumulative" else definition.softmax(scores)
            valid[t] += 1
            hits[t] += int(np.argmax(evidence)) == int(labels[b, t])
    assert_same(result["accuracy"], np.where(valid > 0, hits / np.maximum(valid, 1), np.nan), 1e-12)
    with pytest.raises(ValueError, match="preds: expected scores"):
        temporal_accuracy(logits.argmax(-1), labels, readout=readout)


def test_padded_batches_of_samples_need_a_mask() -> None:
    """What pads a batch is a row without a label unless the mask leaves it out."""
    logits, labels = torch.randn(2, 3, 4), torch.tensor([[1, 1, 1], [2, 2, -1]])
    mask = torch.tensor([[True, True, True], [True, True, False]])
    assert confidence_over_time(logits, labels, details=True)["guess_n"].tolist() == [2, 2, 2]
    assert confidence_over_time(logits, labels, mask, details=True)["guess_n"].tolist() == [2, 2, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("layout", ["BTC", "BCT"])
def test_no_second_tensor_of_the_size_of_the_logits_is_made(
    dtype: torch.dtype, layout: str
) -> None:
    logits = torch.randn(64, 30, 1000).to(dtype).permute(["BTC".index(a) for a in layout])
    labels = torch.randint(0, 1000, (64, 30))
    accuracy, confidence = TemporalAccuracy(top_k=(1, 3, 5)), TemporalConfidence()
    with TensorMemory() as memory:
        rows = row_statistics(logits, labels, layout=layout)
        accuracy.update(rows, None)
        confidence.update(rows, None)
    assert 0 < memory.peak < logits.numel() * logits.element_size()


def test_a_mask_does_not_change_the_first_label() -> None:
    logits = torch.randn(1, 3, 4)
    labels, mask = torch.tensor([[2, 3, 3]]), torch.tensor([[False, True, True]])
    result = confidence_over_time(logits, labels, mask)
    torch.testing.assert_close(result["first_label"][1:], logits.softmax(-1)[0, 1:, 2].double())
    assert result["first_label"][0].isnan()
