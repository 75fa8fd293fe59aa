"""Accuracy, TemporalAccuracy and their functions against the golden values."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.control import wilson_interval
from dynmetrics.temporal import (
    Accuracy,
    TemporalAccuracy,
    accuracy,
    temporal_accuracy,
    topk_accuracy_over_time,
)
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
from tests.reference import accuracy as reference

ACC = temporal_cases("acc")
AVG = temporal_cases("avg")
MULTILABEL = temporal_cases("multilabel")
DECISION = temporal_case("decision__basic")
ABSENT_CLASS = temporal_case("acc__absent_class")
TIES = ("lowest_index", "optimistic", "pessimistic")
LAYOUTS = {"BTC": (0, 1, 2), "BCT": (0, 2, 1), "TBC": (1, 0, 2)}

# How each average is named in the golden files of families avg and multilabel.
SINGLE_LABEL_KEYS = [
    ("micro", "drop", "micro"),
    ("macro", "drop", "macro_absent_dropped"),
    ("macro", "zero", "macro_absent_as_zero"),
    ("weighted", "drop", "weighted"),
    ("none", "drop", "per_class_recall"),
]
MULTILABEL_KEYS = [
    ("micro", "micro"),
    ("macro", "macro"),
    ("weighted", "weighted_support_normalised"),
    ("none", "per_label_accuracy"),
]

acc_case = pytest.mark.parametrize("case", ACC, ids=str)
avg_case = pytest.mark.parametrize("case", AVG, ids=str)
multilabel_case = pytest.mark.parametrize("case", MULTILABEL, ids=str)
tie_case = pytest.mark.parametrize("case", [c for c in ACC if "tie_rules" in c.expected], ids=str)
raising_case = pytest.mark.parametrize("case", [c for c in ACC if "raises" in c.expected], ids=str)
every_route = pytest.mark.parametrize("route", ROUTES)


# ---------------------------------------------------------------------------- what a case holds


def acc_batches(case: Case) -> list[Batch]:
    dtype = getattr(torch, case.inputs.get("labels_dtype", "int64"))
    return [
        (torch.tensor(batch["logits"]), torch.tensor(batch["labels"], dtype=dtype))
        for batch in case.inputs["batches"]
    ]


def as_split(case: Case, scores: Tensor) -> list[Batch]:
    """Scores and targets in batches of the sizes that the case states."""
    sizes = case.inputs["update_splits"]
    target = torch.tensor(case.inputs["targets"])
    return list(zip(torch.split(scores, sizes), torch.split(target, sizes), strict=True))


def avg_batches(case: Case) -> list[Batch]:
    return as_split(case, torch.tensor(case.inputs["scores"]))


def multilabel_batches(case: Case) -> list[Batch]:
    return as_split(case, torch.tensor(case.inputs["probabilities"]))


def decision_batches() -> list[Batch]:
    return [(torch.tensor(DECISION.inputs["logits"]), torch.tensor(DECISION.inputs["labels"]))]


def with_time(batches: list[Batch]) -> list[Batch]:
    """Scores (B, C) as a sequence of a single timestep."""
    return [(scores[:, None], target) for scores, target in batches]


def pooled(batches: list[Batch]) -> Batch:
    """All samples in one batch, the shorter ones padded with unlabeled timesteps."""
    return collate(samples_of(batches))


def arrays(batches: list[Batch]) -> list[tuple[np.ndarray, ...]]:
    return [tuple(field.numpy() for field in batch) for batch in batches]


def expected_topk(case: Case) -> dict[int, dict[str, Any]]:
    """Expected values per k; a case that fixes top-1 alone has them at its top level."""
    if "topk" in case.expected:
        return {int(k): values for k, values in case.expected["topk"].items()}
    return {1: {key: case.expected[key] for key in ("accuracy", "overall")}}


def ks_of(case: Case) -> tuple[int, ...]:
    return tuple(expected_topk(case))


def check_counts(result: dict[str, Any], case: Case) -> None:
    """Valid and nonfinite are exactly the expected integers."""
    assert_integers(result["valid"], case.expected["valid"])
    nonfinite = case.expected.get("nonfinite_rows", [0] * len(case.expected["valid"]))
    assert_integers(result["nonfinite"], nonfinite)


def assert_integers(actual: Any, expected: list[int]) -> None:
    actual = torch.as_tensor(actual)
    assert actual.dtype == torch.int64
    assert actual.tolist() == expected


def check_correct(curve: Any, valid: Any, expected: list[int]) -> None:
    """Accuracy * valid is the exact integer number of correct rows."""
    curve = torch.as_tensor(curve, dtype=torch.float64)
    valid = torch.as_tensor(valid)
    correct = torch.where(valid > 0, curve * valid, 0.0)
    torch.testing.assert_close(correct, correct.round(), rtol=0, atol=1e-4)
    assert correct.round().long().tolist() == expected


def check_topk(result: dict[str, Any], case: Case) -> None:
    """The result for a sequence of k."""
    check_counts(result, case)
    for k, values in expected_topk(case).items():
        case.check(result[f"overall_top{k}"], values["overall"])
        case.check(result[f"top{k}"], values["accuracy"])
        if "correct" in values:
            check_correct(result[f"top{k}"], result["valid"], values["correct"])


def check_single_k(result: dict[str, Any], case: Case, k: int) -> None:
    """The result for one integer k."""
    check_counts(result, case)
    case.check(result["overall"], expected_topk(case)[k]["overall"])
    case.check(result["accuracy"], expected_topk(case)[k]["accuracy"])


# ---------------------------------------------------------------------------- the reference itself


@acc_case
def test_reference_gives_the_golden_curves(case: Case) -> None:
    batches = arrays(acc_batches(case))
    check_topk(reference.temporal_accuracy(batches, ks_of(case)), case)
    for k in ks_of(case):
        check_single_k(reference.temporal_accuracy(batches, k), case, k)


@tie_case
@pytest.mark.parametrize("ties", TIES)
def test_reference_gives_the_golden_tie_rules(case: Case, ties: str) -> None:
    expected = case.expected["tie_rules"][ties]
    counts = reference.count_batches(arrays(acc_batches(case)), [int(k) for k in expected], ties)
    assert {str(k): v.tolist() for k, v in counts["correct"].items()} == expected


@raising_case
def test_reference_refuses_k_beyond_the_classes(case: Case) -> None:
    for k, error in case.expected["raises"].items():
        assert error == "ValueError"
        with pytest.raises(ValueError, match="top_k"):
            reference.temporal_accuracy(arrays(acc_batches(case)), int(k))


def test_reference_gives_the_golden_class_curves() -> None:
    batches = arrays(acc_batches(ABSENT_CLASS))
    expected = ABSENT_CLASS.expected
    check_class_curves(
        {
            policy: reference.temporal_accuracy(batches, average=average, absent_classes=absent)
            for policy, (average, absent) in CLASS_CURVES.items()
        }
    )
    support = reference.count_batches(batches)["class_valid"]
    assert support.T.tolist() == expected["support"]


@avg_case
@pytest.mark.parametrize(("average", "absent", "key"), SINGLE_LABEL_KEYS)
def test_reference_gives_the_golden_averages(
    case: Case, average: str, absent: str, key: str
) -> None:
    for k in case.inputs["topk"]:
        value = reference.accuracy(arrays(avg_batches(case)), k, average, absent)
        case.check(value, case.expected[f"top{k}"][key])


@avg_case
def test_reference_gives_the_golden_class_support(case: Case) -> None:
    counts = reference.count_batches(arrays(with_time(avg_batches(case))))
    assert counts["class_valid"][:, 0].tolist() == case.expected["top1"]["support"]


@multilabel_case
@pytest.mark.parametrize(("average", "key"), MULTILABEL_KEYS)
def test_reference_gives_the_golden_multilabel_values(case: Case, average: str, key: str) -> None:
    batches = arrays(multilabel_batches(case))
    value = reference.multilabel_accuracy(batches, average, case.inputs["threshold"])
    case.check(value, case.expected[key])


@multilabel_case
def test_reference_gives_the_golden_multilabel_counts(case: Case) -> None:
    scores, target = pooled(multilabel_batches(case))
    counts = reference.multilabel_counts(
        scores.numpy(), target.numpy(), threshold=case.inputs["threshold"]
    )
    for key in ("tp", "fp", "tn", "fn"):
        assert counts[key].tolist() == case.expected[key]
    assert (counts["tp"] + counts["fn"]).tolist() == case.expected["support"]


def test_reference_gives_the_golden_wilson_bounds() -> None:
    result = reference.temporal_accuracy(arrays(decision_batches()), confidence=0.95)
    check_wilson_bounds(result)


# ---------------------------------------------------------------------------- curves


@acc_case
@every_route
def test_top_k_curves(case: Case, route: str) -> None:
    metric = feed(partial(TemporalAccuracy, top_k=ks_of(case)), acc_batches(case), route)
    result = metric.compute()
    check_topk(result, case)
    first = ks_of(case)[0]
    assert next(iter(result)) == f"overall_top{first}"
    names = [name for k in ks_of(case) for name in (f"overall_top{k}", f"top{k}")]
    assert set(result) == {*names, "valid", "nonfinite"}


@acc_case
@every_route
def test_curve_of_a_single_k(case: Case, route: str) -> None:
    for k in ks_of(case):
        metric = feed(partial(TemporalAccuracy, top_k=k), acc_batches(case), route)
        result = metric.compute()
        check_single_k(result, case, k)
        assert next(iter(result)) == "overall"
        assert set(result) == {"overall", "accuracy", "valid", "nonfinite"}


@acc_case
def test_temporal_accuracy_in_one_call(case: Case) -> None:
    preds, target = pooled(acc_batches(case))
    check_topk(temporal_accuracy(preds, target, top_k=ks_of(case)), case)
    for k in ks_of(case):
        check_single_k(temporal_accuracy(preds, target, top_k=k), case, k)


@acc_case
@pytest.mark.parametrize("layout", LAYOUTS)
def test_topk_accuracy_over_time(case: Case, layout: str) -> None:
    preds, target = pooled(acc_batches(case))
    preds = preds.permute(LAYOUTS[layout])
    expected = expected_topk(case)
    many = topk_accuracy_over_time(preds, target, ks_of(case), layout=layout)
    assert list(many) == [f"top{k}" for k in expected]
    for k, values in expected.items():
        case.check(many[f"top{k}"], values["accuracy"])
        alone = topk_accuracy_over_time(preds, target, k, layout=layout)
        assert list(alone) == [f"top{k}"]
        case.check(alone[f"top{k}"], values["accuracy"])


@acc_case
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_curve(case: Case, layout: str) -> None:
    metric = TemporalAccuracy(top_k=ks_of(case), layout=layout)
    for preds, target in acc_batches(case):
        metric.update(preds.permute(LAYOUTS[layout]), target)
    check_topk(metric.compute(), case)


def test_layout_is_taken_at_its_word() -> None:
    case = temporal_case("acc__T_equals_C")
    preds, target = pooled(acc_batches(case))
    misread = temporal_accuracy(preds, target, layout="BCT")
    case.check(misread["overall"], case.expected["overall_if_read_as_BCT"])


@acc_case
@every_route
def test_pooled_accuracy_of_sequences(case: Case, route: str) -> None:
    for k, values in expected_topk(case).items():
        metric = feed(partial(Accuracy, top_k=k), acc_batches(case), route)
        case.check(metric.compute(), values["overall"])
        case.check(accuracy(*pooled(acc_batches(case)), top_k=k), values["overall"])


@acc_case
def test_a_mask_does_what_a_negative_label_does(case: Case) -> None:
    preds, target = pooled(acc_batches(case))
    mask = target >= 0
    result = temporal_accuracy(preds, target.where(mask, 0), mask, top_k=ks_of(case))
    check_topk(result, case)


def test_a_timestep_without_labels_is_undefined_whatever_empty_value_is() -> None:
    case = temporal_case("acc__everything_masked")
    preds, target = pooled(acc_batches(case))
    result = temporal_accuracy(preds, target, empty_value=math.nan)
    case.check(result["overall"], math.nan)
    case.check(result["accuracy"], case.expected["accuracy"])
    case.check(accuracy(preds, target, empty_value=0.25), 0.25)


# ---------------------------------------------------------------------------- ties, refusals


@tie_case
@pytest.mark.parametrize("ties", TIES)
@every_route
def test_tie_rules(case: Case, ties: str, route: str) -> None:
    expected = case.expected["tie_rules"][ties]
    ks = tuple(int(k) for k in expected)
    result = feed(
        partial(TemporalAccuracy, top_k=ks, ties=ties), acc_batches(case), route
    ).compute()
    total = sum(case.expected["valid"])
    for k in ks:
        correct = expected[str(k)]
        check_correct(result[f"top{k}"], result["valid"], correct)
        case.check(result[f"overall_top{k}"], sum(correct) / total)
        pool = accuracy(*pooled(acc_batches(case)), top_k=k, ties=ties)
        case.check(pool, sum(correct) / total)


@raising_case
def test_k_beyond_the_classes_is_refused(case: Case) -> None:
    preds, target = pooled(acc_batches(case))
    num_classes = case.inputs["num_classes"]
    for k, error in case.expected["raises"].items():
        assert error == "ValueError"
        for make in (TemporalAccuracy, Accuracy):
            with pytest.raises(ValueError, match="top_k: expected"):
                make(top_k=int(k), num_classes=num_classes)
            with pytest.raises(ValueError, match="top_k: expected"):
                make(top_k=int(k)).update(preds, target)
        with pytest.raises(ValueError, match="top_k: expected"):
            topk_accuracy_over_time(preds, target, int(k))
        with pytest.raises(ValueError, match="top_k: expected"):
            temporal_accuracy(preds, target, top_k=int(k))
        with pytest.raises(ValueError, match="top_k: expected"):
            accuracy(preds, target, top_k=int(k))


# ---------------------------------------------------------------------------- averages over classes

CLASS_CURVES = {
    "per_class_recall": ("none", "drop"),
    "macro_absent_dropped": ("macro", "drop"),
    "macro_absent_as_zero": ("macro", "zero"),
    "macro_absent_is_nan": ("macro", "nan"),
    "weighted": ("weighted", "drop"),
}


def check_class_curves(results: dict[str, dict[str, Any]]) -> None:
    """The curves of acc__absent_class for every entry of CLASS_CURVES."""
    expected = ABSENT_CLASS.expected
    per_class = torch.tensor(expected["per_class_recall"]).T  # stored by time, returned (C, T)
    curves = {name: result["accuracy"] for name, result in results.items()}
    ABSENT_CLASS.check(curves["per_class_recall"], per_class)
    ABSENT_CLASS.check(curves["macro_absent_dropped"], expected["macro_absent_dropped"])
    ABSENT_CLASS.check(curves["macro_absent_as_zero"], expected["macro_absent_as_zero"])
    # Class 3 never has support, so the reading that insists on every class is never defined.
    ABSENT_CLASS.check(curves["macro_absent_is_nan"], [math.nan] * per_class.shape[1])
    ABSENT_CLASS.check(curves["weighted"], expected["accuracy"])
    # Pooled over time, the recall of a class is its correct rows over its rows.
    support = torch.tensor(expected["support"]).T
    recall = (per_class.nan_to_num() * support).sum(1) / support.sum(1)
    overall = {name: result["overall"] for name, result in results.items()}
    ABSENT_CLASS.check(overall["per_class_recall"], recall)
    ABSENT_CLASS.check(overall["macro_absent_dropped"], recall.nanmean())
    ABSENT_CLASS.check(overall["macro_absent_as_zero"], recall.nan_to_num().mean())
    ABSENT_CLASS.check(overall["macro_absent_is_nan"], math.nan)
    ABSENT_CLASS.check(overall["weighted"], expected["topk"]["1"]["overall"])


@every_route
def test_class_averages_over_time(route: str) -> None:
    def result(average: str, absent: str) -> Any:
        options: dict[str, Any] = {"average": average, "absent_classes": absent}
        batches = acc_batches(ABSENT_CLASS)
        return feed(partial(TemporalAccuracy, **options), batches, route).compute()

    check_class_curves({name: result(*options) for name, options in CLASS_CURVES.items()})


def test_class_averages_over_time_in_one_call() -> None:
    preds, target = pooled(acc_batches(ABSENT_CLASS))
    check_class_curves(
        {
            name: temporal_accuracy(preds, target, average=average, absent_classes=absent)
            for name, (average, absent) in CLASS_CURVES.items()
        }
    )


@avg_case
@pytest.mark.parametrize(("average", "absent", "key"), SINGLE_LABEL_KEYS)
@every_route
def test_class_averages(case: Case, average: str, absent: str, key: str, route: str) -> None:
    batches = avg_batches(case)
    for k in case.inputs["topk"]:
        options: dict[str, Any] = {"top_k": k, "average": average, "absent_classes": absent}
        expected = case.expected[f"top{k}"][key]
        case.check(feed(partial(Accuracy, **options), batches, route).compute(), expected)
        case.check(accuracy(*pooled(batches), **options), expected)
        # A sequence of one timestep: its curve is the same value with a time axis of length 1.
        over_time = feed(partial(TemporalAccuracy, **options), with_time(batches), route)
        result = over_time.compute()
        case.check(result["overall"], expected)
        case.check(result["accuracy"], torch.tensor(expected)[..., None])


@avg_case
def test_absent_class_can_make_the_macro_average_undefined(case: Case) -> None:
    recalls = torch.tensor(case.expected["top1"]["per_class_recall"])
    metric = feed(
        partial(Accuracy, average="macro", absent_classes="nan"), avg_batches(case), "given"
    )
    case.check(metric.compute(), recalls.mean())


@avg_case
@pytest.mark.parametrize(("average", "absent", "key"), SINGLE_LABEL_KEYS)
def test_class_indices_instead_of_scores(case: Case, average: str, absent: str, key: str) -> None:
    metric = Accuracy(
        num_classes=case.inputs["num_classes"], average=average, absent_classes=absent
    )
    for scores, target in avg_batches(case):
        metric.update(scores.argmax(-1), target)
    case.check(metric.compute(), case.expected["top1"][key])


# ---------------------------------------------------------------------------- multilabel


@multilabel_case
@pytest.mark.parametrize(("average", "key"), MULTILABEL_KEYS)
@every_route
def test_multilabel_averages(case: Case, average: str, key: str, route: str) -> None:
    options: dict[str, Any] = {
        "mode": "multilabel",
        "threshold": case.inputs["threshold"],
        "average": average,
    }
    batches = multilabel_batches(case)
    value = feed(partial(Accuracy, **options), batches, route).compute()
    case.check(value, case.expected[key])
    case.check(accuracy(*pooled(batches), **options), case.expected[key])


@multilabel_case
def test_multilabel_takes_the_number_of_labels(case: Case) -> None:
    metric = feed(
        partial(Accuracy, mode="multilabel", num_classes=case.inputs["num_labels"], average="none"),
        multilabel_batches(case),
        "given",
    )
    case.check(metric.compute(), case.expected["per_label_accuracy"])


@multilabel_case
@every_route
def test_multilabel_counts_are_exact(case: Case, route: str) -> None:
    options: dict[str, Any] = {
        "mode": "multilabel",
        "average": "none",
        "threshold": case.inputs["threshold"],
    }
    value = feed(partial(Accuracy, **options), multilabel_batches(case), route).compute()
    right = [tp + tn for tp, tn in zip(case.expected["tp"], case.expected["tn"], strict=True)]
    n_samples = torch.full((case.inputs["num_labels"],), len(case.inputs["targets"]))
    check_correct(value, n_samples, right)


# ---------------------------------------------------------------------------- intervals


def check_wilson_bounds(result: dict[str, Any]) -> None:
    bounds = torch.tensor(DECISION.expected["wilson95_t"], dtype=torch.float64)
    DECISION.check(result["accuracy"], DECISION.expected["accuracy_t"])
    DECISION.check(result["low"], bounds[:, 0])
    DECISION.check(result["high"], bounds[:, 1])


@every_route
def test_wilson_bounds_over_time(route: str) -> None:
    metric = feed(partial(TemporalAccuracy, confidence=0.95), decision_batches(), route)
    result = metric.compute()
    check_wilson_bounds(result)
    assert set(result) == {"overall", "accuracy", "low", "high", "valid", "nonfinite"}


def test_wilson_bounds_over_time_in_one_call() -> None:
    preds, target = pooled(decision_batches())
    check_wilson_bounds(temporal_accuracy(preds, target, confidence=0.95))
    many = temporal_accuracy(preds, target, top_k=(1, 2), confidence=0.95)
    check_wilson_bounds(
        {"accuracy": many["top1"], "low": many["low_top1"], "high": many["high_top1"]}
    )
    assert {"low_top2", "high_top2"} <= set(many)


def test_wilson_interval_of_the_counts() -> None:
    preds, target = pooled(decision_batches())
    result = temporal_accuracy(preds, target)
    correct = (result["accuracy"] * result["valid"]).round()
    low, high = wilson_interval(correct, result["valid"], 0.95)
    check_wilson_bounds({"accuracy": result["accuracy"], "low": low, "high": high})


@acc_case
def test_bounds_are_vacuous_where_nothing_is_valid(case: Case) -> None:
    result = feed(partial(TemporalAccuracy, confidence=0.95), acc_batches(case), "given").compute()
    empty = result["valid"] == 0
    assert (result["low"][empty] == 0).all()
    assert (result["high"][empty] == 1).all()
    held = ~empty
    assert (result["low"][held] <= result["accuracy"][held]).all()
    assert (result["accuracy"][held] <= result["high"][held]).all()
