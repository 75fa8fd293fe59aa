"""Calibration, confusion, class scores, decisions and curves against the golden values."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from dynmetrics.temporal import (
    AreaUnderAccuracy,
    DecisionLatency,
    FlipRate,
    ReactionTime,
    TemporalAccuracy,
    TemporalCalibrationError,
    TemporalConfusion,
    TemporalFScore,
    TemporalPrecision,
    TemporalRecall,
    area_under_accuracy,
    decision_latency,
    early_exit_curve,
    flip_rate,
    reaction_time,
    reaction_time_curve,
    temporal_accuracy,
    temporal_calibration_error,
    temporal_confusion,
    temporal_fscore,
    temporal_generalisation,
    temporal_precision,
    temporal_recall,
)
from tests.golden_cases import ROUTES, Batch, Case, feed, temporal_case, temporal_cases
from tests.reference import decisions as reference

DECISION = temporal_case("decision__basic")
EXPECTED = DECISION.expected
LOGITS = torch.tensor(DECISION.inputs["logits"], dtype=torch.float64)
LABELS = torch.tensor(DECISION.inputs["labels"])
BATCHES: list[Batch] = [(LOGITS, LABELS)]
ROWS = [(LOGITS.numpy(), LABELS.numpy())]
AVG = temporal_cases("avg")

every_route = pytest.mark.parametrize("route", ROUTES)
every_kind = pytest.mark.parametrize(
    ("kind", "key"),
    [("stable", "stable_decision_latency"), ("first_correct", "time_to_first_correct")],
)
every_measure = pytest.mark.parametrize(
    ("measure", "threshold"),
    [
        ("confidence", DECISION.inputs["confidence_threshold"]),
        ("entropy", DECISION.inputs["entropy_threshold_nats"]),
    ],
)


# ---------------------------------------------------------------------------- decisions


def check_latency(result: dict[str, Any], times: list[int]) -> None:
    labelled = [t for t, row in zip(times, DECISION.inputs["labels"], strict=True) if max(row) >= 0]
    decided = [t for t in labelled if t >= 0]
    assert int(result["n"]) == len(labelled)
    assert result["histogram"].tolist() == [decided.count(t) for t in range(6)]
    DECISION.check(result["mean"], sum(decided) / len(decided))
    DECISION.check(result["median"], torch.tensor(decided).double().quantile(0.5))
    DECISION.check(result["never"], 1 - len(decided) / len(labelled))


@every_kind
@every_route
def test_latency(kind: str, key: str, route: str) -> None:
    check_latency(
        feed(partial(DecisionLatency, kind=kind), BATCHES, route).compute(), EXPECTED[key]
    )


@every_kind
def test_latency_in_one_call(kind: str, key: str) -> None:
    check_latency(decision_latency(LOGITS, LABELS, kind=kind), EXPECTED[key])
    check_latency(
        {k: torch.as_tensor(v) for k, v in reference.decision_latency(ROWS, kind).items()},
        EXPECTED[key],
    )


def test_nobody_never_is_right() -> None:
    assert EXPECTED["never_correct"] == 0
    assert float(decision_latency(LOGITS, LABELS, kind="first_correct")["never"]) == 0


def check_reaction(result: dict[str, Any], measure: str) -> None:
    times = [
        t
        for t in EXPECTED["rt_confidence" if measure == "confidence" else "rt_entropy_nats"]
        if t >= 0
    ]
    assert int(result["n"]) == len(times)
    assert result["histogram"].tolist() == [times.count(t) for t in range(6)]
    DECISION.check(result["mean"], sum(times) / len(times))
    DECISION.check(result["accuracy"], EXPECTED[f"accuracy_at_rt_{measure}"])
    if measure == "confidence":
        DECISION.check(result["mean"], EXPECTED["mean_rt_confidence"])
        DECISION.check(result["forced"], sum(EXPECTED["rt_confidence_forced"]) / len(times))


@every_measure
@every_route
def test_reaction_time(measure: str, threshold: float, route: str) -> None:
    make = partial(ReactionTime, measure=measure, threshold=threshold)
    check_reaction(feed(make, BATCHES, route).compute(), measure)


@every_measure
def test_reaction_time_in_one_call(measure: str, threshold: float) -> None:
    check_reaction(reaction_time(LOGITS, LABELS, measure=measure, threshold=threshold), measure)
    by_definition = reference.reaction_time(ROWS, threshold, measure)
    check_reaction({k: torch.as_tensor(v) for k, v in by_definition.items()}, measure)


@every_measure
def test_curves_over_thresholds_pass_through_the_golden_points(
    measure: str, threshold: float
) -> None:
    thresholds = [0.1, threshold, 0.99]
    curve = reaction_time_curve(LOGITS, LABELS, thresholds, measure=measure)
    for i, value in enumerate(thresholds):
        point = reaction_time(LOGITS, LABELS, measure=measure, threshold=value)
        for key in ("mean", "accuracy", "forced"):
            DECISION.check(curve[key][i], point[key])
    DECISION.check(curve["accuracy"][1], EXPECTED[f"accuracy_at_rt_{measure}"])
    assert list(curve["threshold"]) == thresholds
    if measure == "confidence":
        earliness = EXPECTED["earliness_mean_1_minus_steps_seen_over_T"]
        DECISION.check(curve["earliness"][1], earliness)
        DECISION.check(curve["harmonic_mean"][1], EXPECTED["harmonic_mean_accuracy_earliness"])


@pytest.mark.parametrize("layout", ["BTC", "BCT", "TBC"])
def test_early_exit_curve(layout: str) -> None:
    thresholds = [0.3, DECISION.inputs["confidence_threshold"], 1.0]
    logits = LOGITS.permute(["BTC".index(axis) for axis in layout])
    costs = DECISION.inputs["cumulative_cost_per_step"]
    curve = early_exit_curve(logits, LABELS, costs, thresholds, layout=layout)
    assert curve["exits"][1].tolist() == EXPECTED["exit_histogram_confidence"]
    DECISION.check(curve["cost"][1], EXPECTED["mean_cost_confidence"])
    DECISION.check(curve["accuracy"][1], EXPECTED["accuracy_at_rt_confidence"])
    # No one is ever entirely sure: everyone leaves at the last labelled timestep.
    assert curve["exits"][2].tolist() == [0, 0, 0, 1, 0, 12]


def test_curves_refuse_what_does_not_fit() -> None:
    for call in (
        lambda: reaction_time_curve(LOGITS, LABELS, []),
        lambda: reaction_time_curve(LOGITS, LABELS, [0.5, 1.5]),
        lambda: reaction_time_curve(LOGITS, LABELS, [0.5], measure="margin"),
        lambda: reaction_time_curve(LOGITS, LABELS, [0.5], layout="CBT"),
        lambda: reaction_time_curve(LOGITS[:, :0], LABELS[:, :0], [0.5]),
        lambda: early_exit_curve(LOGITS, LABELS, [1, 2], [0.5]),
    ):
        with pytest.raises(ValueError, match=r"\w+: expected .+, got .+"):
            call()


def test_a_network_that_never_answers_has_undefined_curves() -> None:
    curve = reaction_time_curve(LOGITS, torch.full_like(LABELS, -1), [0.5])
    assert all(curve[key].isnan().all() for key in ("mean", "accuracy", "forced", "harmonic_mean"))


@every_route
def test_flip_rate(route: str) -> None:
    DECISION.check(feed(FlipRate, BATCHES, route).compute(), EXPECTED["flip_rate_mean_of_samples"])
    pooled = feed(partial(FlipRate, average="pooled"), BATCHES, route).compute()
    DECISION.check(pooled, EXPECTED["flip_rate_pooled"])


def test_flip_rate_of_every_sample() -> None:
    for i, expected in enumerate(EXPECTED["flip_rate_per_sample"]):
        DECISION.check(flip_rate(LOGITS[i : i + 1], LABELS[i : i + 1]), expected)
        DECISION.check(reference.flip_rate([(LOGITS[i : i + 1], LABELS[i : i + 1])]), expected)


@every_route
def test_area_under_accuracy(route: str) -> None:
    expected = EXPECTED["auc_trapezoid_over_T_minus_1"]
    DECISION.check(feed(AreaUnderAccuracy, BATCHES, route).compute(), expected)
    DECISION.check(area_under_accuracy(LOGITS, LABELS), expected)
    DECISION.check(reference.area_under_curve(EXPECTED["accuracy_t"]), expected)
    curve = feed(TemporalAccuracy, BATCHES, route).compute()["accuracy"]
    DECISION.check(curve.mean(), EXPECTED["mean_accuracy_over_t"])


@every_route
def test_calibration_error(route: str) -> None:
    metric = feed(
        partial(TemporalCalibrationError, n_bins=DECISION.inputs["ece_bins"]), BATCHES, route
    )
    result = metric.compute()
    DECISION.check(result["ece"], EXPECTED["ece10_t"])
    assert result["valid"].tolist() == (LABELS >= 0).sum(0).tolist()
    DECISION.check(
        temporal_calibration_error(LOGITS, LABELS, n_bins=10)["ece"], EXPECTED["ece10_t"]
    )


@every_route
def test_confusion(route: str) -> None:
    expected = EXPECTED["confusion_t"]
    assert feed(TemporalConfusion, BATCHES, route).compute().tolist() == expected
    assert temporal_confusion(LOGITS, LABELS).tolist() == expected
    assert reference.temporal_confusion(ROWS, 4).tolist() == expected


@pytest.mark.parametrize(
    ("readout", "key"),
    [
        ("step", "accuracy_t"),
        ("cumulative", "accuracy_t_cumulative_logits"),
        ("cumulative_probabilities", "accuracy_t_cumulative_probabilities"),
    ],
)
@every_route
def test_readouts(readout: str, key: str, route: str) -> None:
    metric = feed(partial(TemporalAccuracy, readout=readout), BATCHES, route)
    DECISION.check(metric.compute()["accuracy"], EXPECTED[key])
    DECISION.check(temporal_accuracy(LOGITS, LABELS, readout=readout)["accuracy"], EXPECTED[key])


# ---------------------------------------------------------------------------- generalisation


def test_temporal_generalisation() -> None:
    case = temporal_case("decision__temporal_generalisation")
    features = torch.tensor(case.inputs["features_BTD"])
    weights = torch.tensor(case.inputs["readout_weights_TCD"])
    labels = torch.tensor(case.inputs["labels"])
    matrix = temporal_generalisation(features, weights, labels)
    case.check(matrix, case.expected["matrix_train_by_test"])
    case.check(matrix.diagonal(), case.expected["diagonal"])
    scores = torch.einsum("btd,tcd->btc", features, weights)
    case.check(matrix.diagonal(), temporal_accuracy(scores, labels)["accuracy"])
    # A bias that outweighs everything makes one guess of all.
    bias = torch.zeros(4, 4)
    bias[:, 1] = 1e6
    share = (labels == 1).double().mean()
    case.check(temporal_generalisation(features, weights, labels, bias=bias), share.expand(4, 4))
    mask = torch.zeros(len(labels), dtype=torch.bool)
    assert temporal_generalisation(features, weights, labels, mask).isnan().all()
    for wrong in (weights[0], weights[..., :3], weights.long()):
        with pytest.raises(ValueError, match="weights: expected"):
            temporal_generalisation(features, wrong, labels)
    with pytest.raises(ValueError, match="bias: expected"):
        temporal_generalisation(features, weights, labels, bias=bias[:2])


# ---------------------------------------------------------------------------- class scores

CLASS_SCORES = {
    "precision": (TemporalPrecision, temporal_precision, "precision"),
    "recall": (TemporalRecall, temporal_recall, "recall"),
    "f1": (TemporalFScore, temporal_fscore, "fscore"),
}


@pytest.mark.parametrize("case", AVG, ids=str)
@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@pytest.mark.parametrize("score", CLASS_SCORES)
def test_class_scores(case: Case, average: str, score: str) -> None:
    cls, function, entry = CLASS_SCORES[score]
    options = {
        "num_classes": case.inputs["num_classes"],
        "average": average,
        "absent_classes": "zero",
    }
    scores, target = torch.tensor(case.inputs["scores"]), torch.tensor(case.inputs["targets"])
    expected = case.expected[score][average]
    sizes = case.inputs["update_splits"]
    batches: list[Batch] = list(zip(scores[:, None].split(sizes), target.split(sizes), strict=True))
    for route in ROUTES:
        result = feed(partial(cls, **options), batches, route).compute()
        case.check(result["overall"], expected)
        case.check(result[entry], [expected])
    case.check(function(scores[:, None], target, **options)["overall"], expected)
    by_definition = reference.temporal_class_score(
        [(scores[:, None], target)], entry, options["num_classes"], average, "zero"
    )
    case.check(by_definition["overall"], expected)
