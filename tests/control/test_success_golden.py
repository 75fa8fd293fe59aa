"""SuccessRate and the binomial intervals against the golden values."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from dynmetrics.control import SuccessRate, success_rate, wilson_interval
from tests.golden_cases import ROUTES, Batch, Case, feed, world_cases
from tests.reference import success as reference

CASES = world_cases("success_rate")
DTYPES = (torch.bool, torch.int64, torch.float32)

# The independent value that each interval is checked against.
REFERENCES = {
    "wilson": ("statsmodels wilson", "scipy wilson"),
    "wilsoncc": ("scipy wilsoncc (continuity corrected)",),
    "exact": ("scipy exact (Clopper-Pearson)",),
}

every_case = pytest.mark.parametrize("case", CASES, ids=str)
every_route = pytest.mark.parametrize("route", ROUTES)
# Without episodes most routes have nothing to update with; the value must be right all the same.
may_be_empty = pytest.mark.filterwarnings("ignore:.*before any update")
every_interval = pytest.mark.parametrize("interval", reference.INTERVALS)


def episodes_of(case: Case) -> list[int]:
    """One 0 or 1 per episode; long cases give the two counts instead."""
    if "success" in case.inputs:
        return list(case.inputs["success"])
    return [1] * case.inputs["n_success"] + [0] * case.inputs["n_failure"]


def batches_of(case: Case, dtype: torch.dtype = torch.bool) -> list[Batch]:
    """Three uneven batches, the first of which holds the first episode alone."""
    success = torch.tensor(episodes_of(case)).to(dtype)
    return [(part,) for part in success.tensor_split([1, len(success) // 2 + 1])]


def expected_values(case: Case, interval: str) -> list[dict[str, Any]]:
    """Every golden value of the interval; without episodes all intervals say the same."""
    default = case.expected["recommended_default"]
    if default["n"] == 0:
        return [default]
    independent = [case.expected["references"][name] for name in REFERENCES.get(interval, ())]
    return [default, *independent] if interval == "wilson" else independent


def check(case: Case, actual: dict[str, Any], expected: dict[str, Any]) -> None:
    """Rate, bounds and n, with bounds that are exact at the edges and never leave [0, 1]."""
    case.check(actual["rate"], expected["value"])
    case.check(actual["low"], expected["low"])
    case.check(actual["high"], expected["high"])
    assert int(actual["n"]) == expected["n"]
    low, high = float(actual["low"]), float(actual["high"])
    assert 0.0 <= low <= high <= 1.0
    if expected["low"] == 0.0:
        assert low == 0.0
    if expected["high"] == 1.0:
        assert high == 1.0


# ---------------------------------------------------------------------------- the reference itself


@every_case
@every_interval
def test_reference_gives_the_golden_values(case: Case, interval: str) -> None:
    result = reference.success_rate(episodes_of(case), interval=interval, **case.params)
    for expected in expected_values(case, interval):
        check(case, result, expected)


# ---------------------------------------------------------------------------- the class


@every_case
@every_route
@may_be_empty
def test_success_rate_metric(case: Case, route: str) -> None:
    result = feed(partial(SuccessRate, **case.params), batches_of(case), route).compute()
    assert next(iter(result)) == "rate"
    assert set(result) == {"rate", "low", "high", "n"}
    assert result["n"].dtype == torch.int64
    for expected in expected_values(case, "wilson"):
        check(case, result, expected)


@every_case
@every_interval
@every_route
@may_be_empty
def test_every_interval_of_the_metric(case: Case, interval: str, route: str) -> None:
    options: dict[str, Any] = {"interval": interval, **case.params}
    result = feed(partial(SuccessRate, **options), batches_of(case), route).compute()
    for expected in expected_values(case, interval):
        check(case, result, expected)
    by_definition = reference.success_rate(episodes_of(case), interval=interval, **case.params)
    check(case, result, {**by_definition, "value": by_definition["rate"]})


@every_case
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["final", "any"])
def test_flags_of_any_type(case: Case, dtype: torch.dtype, mode: str) -> None:
    result = feed(
        partial(SuccessRate, mode=mode, **case.params), batches_of(case, dtype), "given"
    ).compute()
    check(case, result, case.expected["recommended_default"])


@every_case
@pytest.mark.parametrize("mode", ["final", "any"])
def test_flags_over_time(case: Case, mode: str) -> None:
    """A success held from some timestep on counts in either mode."""
    metric = SuccessRate(mode=mode, **case.params)
    for (success,) in batches_of(case):
        metric.update(torch.stack([torch.zeros_like(success), success, success], dim=1))
    check(case, metric.compute(), case.expected["recommended_default"])


@every_case
@pytest.mark.parametrize("average", ["micro", "macro"])
def test_a_single_task_is_the_whole(case: Case, average: str) -> None:
    metric = SuccessRate(num_tasks=1, average=average, **case.params)
    for (success,) in batches_of(case):
        metric.update(success, task=torch.zeros(len(success), dtype=torch.int64))
    result = metric.compute()
    expected = case.expected["recommended_default"]
    check(case, result, expected)
    task = {name: result[f"task_{name}"] for name in ("rate", "low", "high", "n")}
    assert all(value.shape == (1,) for value in task.values())
    check(case, {name: value[0] for name, value in task.items()}, expected)


# ---------------------------------------------------------------------------- the functions


@every_case
@every_interval
def test_success_rate_in_one_call(case: Case, interval: str) -> None:
    success = torch.tensor(episodes_of(case)).bool()
    rate = success_rate(success, case.params["confidence"], interval=interval)
    value, low, high, n = rate
    assert (value, low, high, n) == (rate.value, rate.low, rate.high, rate.n) or rate.n == 0
    assert [type(entry) for entry in rate] == [float, float, float, int]
    for expected in expected_values(case, interval):
        check(case, {"rate": value, "low": low, "high": high, "n": n}, expected)


@every_case
def test_wilson_interval_of_numbers(case: Case) -> None:
    episodes = episodes_of(case)
    low, high = wilson_interval(sum(episodes), len(episodes), case.params["confidence"])
    result = {"rate": case.expected["recommended_default"]["value"], "low": low, "high": high}
    check(case, {**result, "n": len(episodes)}, case.expected["recommended_default"])


@pytest.mark.parametrize("confidence", sorted({case.params["confidence"] for case in CASES}))
def test_wilson_interval_of_tensors(confidence: float) -> None:
    cases = [case for case in CASES if case.params["confidence"] == confidence]
    k = torch.tensor([sum(episodes_of(case)) for case in cases])
    n = torch.tensor([len(episodes_of(case)) for case in cases])
    bounds = torch.stack([torch.as_tensor(bound) for bound in wilson_interval(k, n, confidence)])
    for index, case in enumerate(cases):
        expected = case.expected["recommended_default"]
        low, high = bounds[:, index]
        row = {"rate": expected["value"], "low": low, "high": high, "n": n[index]}
        check(case, row, expected)
