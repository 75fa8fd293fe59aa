"""Aggregates over runs and tasks against the golden cases and the definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from dynmetrics.control import (
    iqm,
    optimality_gap,
    probability_of_improvement,
    stratified_bootstrap,
)
from tests.golden_cases import Case, world_cases
from tests.reference import control as definition

CASES = [case for case in world_cases("policy_comparison") if "scores" in case.inputs]
every_case = pytest.mark.parametrize("case", CASES, ids=str)


@every_case
def test_golden_aggregates(case: Case) -> None:
    scores = torch.tensor(case.inputs["scores"], dtype=torch.float64)
    references = case.expected["references"]
    case.check(iqm(scores), case.expected["recommended_default"])
    case.check(definition.iqm(scores), case.expected["recommended_default"])
    case.check(optimality_gap(scores), references["optimality gap at 1"])
    case.check(definition.optimality_gap(scores), references["optimality gap at 1"])
    value, low, high = stratified_bootstrap(scores, torch.mean, resamples=200)
    case.check(value, references["mean of task means"])
    assert low < value < high


@pytest.mark.parametrize("n", range(1, 14))
def test_iqm_is_the_trimmed_mean(n: int) -> None:
    scores = torch.randn(n, dtype=torch.float64)
    assert float(iqm(scores)) == pytest.approx(stats.trim_mean(scores.numpy(), 0.25))
    assert float(iqm(scores)) == pytest.approx(definition.iqm(scores))


def test_undefined_scores() -> None:
    """NaN sorts last, where the trimming would hide it."""
    scores = torch.tensor([0.0, 1.0, 2.0, torch.nan])
    assert torch.isnan(iqm(scores))
    assert torch.isnan(optimality_gap(scores))
    assert torch.isnan(iqm(torch.zeros(0)))
    assert torch.isnan(probability_of_improvement(scores[:, None], scores[:, None]))


def test_optimality_gap_does_not_reward_excess() -> None:
    scores = torch.tensor([[0.5, 3.0], [1.0, 0.0]])
    assert float(optimality_gap(scores)) == 0.375
    assert float(optimality_gap(scores, target=2.0)) == definition.optimality_gap(scores, 2.0)


def test_probability_of_improvement() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (6, 3)), rng.integers(0, 5, (4, 3))
    ours = float(probability_of_improvement(torch.tensor(x), torch.tensor(y)))
    assert ours == pytest.approx(definition.probability_of_improvement(x, y))
    mirrored = float(probability_of_improvement(torch.tensor(y), torch.tensor(x)))
    assert ours + mirrored == pytest.approx(1)
    u = [stats.mannwhitneyu(x[:, k], y[:, k]).statistic / 24 for k in range(3)]
    assert ours == pytest.approx(np.mean(u))
    inf = torch.tensor([[torch.inf]])
    assert float(probability_of_improvement(inf, torch.zeros(1, 1))) == 1
    with pytest.raises(ValueError, match="y: expected"):
        probability_of_improvement(torch.zeros(2, 3), torch.zeros(2, 2))


def test_bootstrap_by_another_generator() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(12, 5)) + 10 * np.arange(5)
    value, low, high = stratified_bootstrap(
        torch.tensor(scores), torch.mean, resamples=4000, confidence=0.9
    )
    drawn = definition.bootstrap_means(scores, np.mean, 4000, seed=2)
    assert value == pytest.approx(scores.mean())
    assert (low, high) == pytest.approx(np.quantile(drawn, [0.05, 0.95]), abs=0.02)
    # Runs drawn across tasks would spread ten times as wide.
    assert high - low < 0.6


def test_bootstrap_has_its_own_generator() -> None:
    scores = torch.rand(5, 3)
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first = stratified_bootstrap(scores, iqm, resamples=50, seed=3)
    assert torch.equal(torch.rand(1), expected)
    assert stratified_bootstrap(scores, iqm, resamples=50, seed=3) == first
    assert stratified_bootstrap(scores, iqm, resamples=50, seed=4) != first
    assert all(isinstance(number, float) for number in first)


def test_bootstrap_refuses() -> None:
    for scores, options in (
        (torch.zeros(0, 3), {}),
        (torch.zeros(3), {}),
        (torch.zeros(2, 2), {"resamples": 0}),
        (torch.zeros(2, 2), {"confidence": 1}),
    ):
        with pytest.raises(ValueError, match="expected"):
            stratified_bootstrap(scores, torch.mean, **options)


def test_scores_on_two_devices_are_refused() -> None:
    with pytest.raises(ValueError, match="y: expected a tensor on the metric's device"):
        probability_of_improvement(torch.ones(2, 1), torch.ones(2, 1, device="meta"))
