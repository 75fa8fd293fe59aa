"""SuccessRate under all laws, and its intervals."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from dynmetrics.control import SuccessRate, success_rate, wilson_interval
from dynmetrics.control.intervals import INTERVALS, proportion_bounds
from dynmetrics.control.success import episode_outcomes
from dynmetrics.core import StreamingMetric
from tests.contract import Batch, MetricContract, assert_same
from tests.reference import success as definition


class TestEpisodes(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"low", "high"}

    def make(self) -> StreamingMetric:
        return SuccessRate(interval="agresti-coull")

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        return [{"success": torch.tensor(rng.random(n) < 0.7)} for n in (5, 1, 0, 8)]

    def reference(self, batches: list[Batch]) -> Any:
        success = np.concatenate([batch["success"].numpy() for batch in batches])
        return definition.success_rate(success, interval="agresti-coull")

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"success": torch.tensor([True])}
        return [
            (SuccessRate(), SuccessRate(confidence=0.9), first),
            (SuccessRate(), SuccessRate(mode="any"), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        two = torch.tensor([True, False])
        return [
            {"success": torch.tensor([0.5])},
            {"success": torch.tensor([0, 2])},
            {"success": torch.tensor([1.0, torch.nan])},
            {"success": torch.tensor([torch.inf])},
            {"success": torch.tensor(True)},
            {"success": torch.ones(2, 3, 4) > 0},
            {"success": torch.ones(2, 0) > 0},
            {"success": [True]},
            {"success": two, "task": torch.tensor([0, 1])},
            {"success": two, "lengths": torch.tensor([1, 1])},
            {"success": two[:, None], "lengths": torch.tensor([1])},
            {"success": two[:, None], "lengths": torch.tensor([1.5, 1.0])},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: SuccessRate(confidence=0),
            lambda: SuccessRate(confidence=True),
            lambda: SuccessRate(interval="wald"),
            lambda: SuccessRate(mode="last"),
            lambda: SuccessRate(average="macro"),
            lambda: SuccessRate(average="none"),
            lambda: SuccessRate(num_tasks=0),
            lambda: SuccessRate(nan_policy="drop"),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return episode_outcomes, [torch.rand(3, 4).round(), torch.tensor([1, 4, 0]), "any"]


class TestTasksOfPaddedEpisodes(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"low", "high", "task_low", "task_high"}
    options: ClassVar[dict[str, Any]] = {"mode": "any", "average": "macro", "interval": "jeffreys"}

    def make(self) -> StreamingMetric:
        return SuccessRate(num_tasks=4, **self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        """T differs between batches; task 3 has no episode; some episodes have no step."""
        rng = np.random.default_rng(seed)
        return [
            {
                "success": torch.tensor(rng.random((n, t)) < 0.2),
                "task": torch.tensor(rng.integers(0, 3, n)),
                "lengths": torch.tensor(rng.integers(0, t + 1, n)),
            }
            for n, t in ((5, 4), (1, 6), (0, 2), (8, 3))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        episodes = [list(row) for batch in batches for row in batch["success"].numpy()]
        task = [t for batch in batches for t in batch["task"].tolist()]
        lengths = [n for batch in batches for n in batch["lengths"].tolist()]
        return definition.success_rate(episodes, task, lengths, num_tasks=4, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {
            "success": torch.tensor([[True]]),
            "task": torch.tensor([0]),
            "lengths": torch.tensor([1]),
        }
        one, other = SuccessRate(num_tasks=4), SuccessRate(num_tasks=4, nan_policy="omit")
        return [(one, other, first)]

    def bad_inputs(self) -> list[Batch]:
        success = torch.tensor([[True, False]])
        return [
            {"success": success},
            {"success": success, "task": torch.tensor([0, 1])},
            {"success": success, "task": torch.tensor([0.5])},
            {"success": success, "task": torch.tensor([0]), "lengths": torch.tensor([[2]])},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: SuccessRate(num_tasks=2.0)]  # type: ignore[arg-type]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return episode_outcomes, [torch.rand(3, 4).round(), None, "final"]


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_intervals_against_the_definition(interval: str, confidence: float) -> None:
    pairs = [
        (k, n) for n in (0, 1, 2, 7, 50, 100_000) for k in {0, 1, n // 2, n - 1, n} if 0 <= k <= n
    ]
    k, n = torch.tensor(pairs).T
    low, high = proportion_bounds(k, n, confidence, interval)
    expected = [definition.INTERVALS[interval](k, n, confidence) for k, n in pairs]
    np.testing.assert_allclose(torch.stack([low, high], 1).numpy(), expected, rtol=0, atol=1e-9)
    assert (low[k == 0] == 0).all()
    assert (high[k == n] == 1).all()


@pytest.mark.parametrize("policy", ["omit", "failure"])
@pytest.mark.parametrize("mode", ["final", "any"])
def test_nan_policies(policy: str, mode: str) -> None:
    nan = torch.nan
    success = torch.tensor([[1, nan], [0, 1], [nan, 0], [0, 0], [nan, nan]])
    lengths = torch.tensor([2, 2, 2, 1, 1])
    metric = SuccessRate(nan_policy=policy, mode=mode)
    metric.update(success[:2], lengths=lengths[:2])
    metric.update(success[2:], lengths=lengths[2:])
    expected = definition.success_rate(
        success.numpy(), lengths=lengths.tolist(), nan_policy=policy, mode=mode
    )
    assert_same(metric.compute(), expected, 1e-12)


def test_what_lies_behind_the_length_does_not_count() -> None:
    success = torch.tensor([[True, False, True], [False, False, True]])
    lengths = torch.tensor([1, 2])
    assert success_rate(success, lengths=lengths).value == 0.5
    assert success_rate(success, lengths=lengths, mode="any").value == 0.5
    assert success_rate(success).value == 1.0


def test_strays_are_left_out_with_one_warning() -> None:
    metric = SuccessRate(num_tasks=2)
    success = torch.tensor([[True, True], [True, False], [True, True]])
    metric.update(success, task=torch.tensor([0, 7, -1]), lengths=torch.tensor([2, 1, 9]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = metric.compute()
    messages = "\n".join(str(warning.message) for warning in caught)
    assert "lengths exceed T" in messages
    assert "1 episodes have a task not below 2" in messages
    assert (int(result["n"]), result["task_n"].tolist()) == (2, [1, 0])
    assert len(caught) == 2
    metric.update(success, task=torch.tensor([0, 7, -1]))
    metric.compute()


def test_nothing_seen() -> None:
    rate = success_rate(torch.zeros(0, dtype=torch.bool))
    assert np.isnan(rate.value)
    assert (rate.low, rate.high, rate.n) == (0.0, 1.0, 0)


def test_wilson_interval_of_numbers_and_tensors() -> None:
    low, high = wilson_interval(8, 16)
    assert isinstance(low, float)
    assert isinstance(high, float)
    assert (round(low, 4), round(high, 4)) == (0.28, 0.72)
    lows, highs = map(torch.as_tensor, wilson_interval(torch.tensor([0, 8, 16]), torch.tensor(16)))
    assert (float(lows[0]), float(lows[1]), float(highs[2])) == (0.0, low, 1.0)
    for k, n, confidence in ((3, 2, 0.95), (-1, 2, 0.95), (1, 2, 0.0), (1, 2, 95)):
        with pytest.raises(ValueError, match="expected"):
            wilson_interval(k, n, confidence)
