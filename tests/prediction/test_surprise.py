"""Surprise under all laws, and where others go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from dynmetrics.core import StreamingMetric
from dynmetrics.prediction import Surprise
from dynmetrics.prediction.surprise import video_surprise
from tests.contract import Batch, MetricContract, assert_same
from tests.reference import prediction as definition


class TestMean(MetricContract):
    optout: ClassVar[dict[str, str]] = {
        "counts_beyond_float32": "videos are kept, not counted",
    }
    aggregate: ClassVar[str] = "mean"

    def make(self) -> StreamingMetric:
        return Surprise(aggregate=self.aggregate, confidence=0.9)

    def batches(self, seed: int = 0) -> list[Batch]:
        """Pairs spread over batches, incomplete ones, ties, and videos without a step."""
        rng = np.random.default_rng(seed)
        return [
            {
                "error": torch.tensor(rng.integers(0, 4, (n, t)) / 2.0),
                "pair": torch.tensor(rng.integers(-3, 4, n)),
                "possible": torch.tensor(rng.random(n) < 0.5),
                "mask": torch.tensor(rng.random((n, t)) < 0.6),
            }
            for n, t in ((6, 3), (1, 1), (0, 2), (9, 2))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        videos = [
            (error.detach()[mask].tolist(), int(pair), bool(kind))
            for batch in batches
            for error, pair, kind, mask in zip(*batch.values(), strict=True)
        ]
        return definition.surprise(videos, self.aggregate, 0.9)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {
            "error": torch.ones(1, 1),
            "pair": torch.tensor([0]),
            "possible": torch.tensor([True]),
        }
        return [(Surprise(), Surprise(aggregate="max"), first)]

    def bad_inputs(self) -> list[Batch]:
        error, pair = torch.rand(2, 3), torch.tensor([0, 0])
        possible = torch.tensor([True, False])
        good = {"error": error, "pair": pair, "possible": possible}
        return [
            {**good, "error": error[0]},
            {**good, "pair": pair[:1]},
            {**good, "pair": torch.tensor([0.5, 0.5])},
            {**good, "possible": pair},
            {**good, "possible": possible[:1]},
            {**good, "mask": possible},
            {**good, "mask": torch.ones(2, 3)},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: Surprise(aggregate="sum"),
            lambda: Surprise(confidence=1),
            lambda: Surprise(capacity=0),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return video_surprise, [torch.rand(3, 4), torch.rand(3, 4) < 0.5, self.aggregate]


class TestMax(TestMean):
    aggregate: ClassVar[str] = "max"


def updated(error: Any, pair: Any, possible: Any, **options: Any) -> dict[str, Any]:
    metric = Surprise(**options)
    metric.update(torch.tensor(error), torch.tensor(pair), torch.tensor(possible))
    result: dict[str, Any] = metric.compute()
    return result


def test_mean_and_maximum_may_disagree() -> None:
    """Both are kept: the impossible video is the more surprising on average, not at its peak."""
    error = [[0.0, 0.0, 0.9], [0.5, 0.5, 0.5]]
    assert updated(error, [0, 0], [True, False])["pair_accuracy"] == 1
    assert updated(error, [0, 0], [True, False], aggregate="max")["pair_accuracy"] == 0


def test_padding_does_not_lower_the_mean() -> None:
    """The impossible video is shorter; zeros behind its end would make it the less surprising."""
    error = torch.tensor([[0.5, 0.5, 0.5, 0.5], [0.9, 0.9, 0.0, 0.0]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    metric = Surprise()
    metric.update(error, torch.tensor([3, 3]), torch.tensor([True, False]), mask=mask)
    assert metric.compute()["pair_accuracy"] == 1


def test_a_model_that_is_never_surprised_is_at_chance() -> None:
    result = updated([[0.0]] * 4, [0, 0, 1, 1], [True, False, True, False])
    assert result["pair_accuracy"] == 0.5
    assert result["auroc"] == 0.5


def test_a_diverged_model_loses() -> None:
    error = [[torch.nan], [1.0], [1.0], [torch.nan]]
    result = updated(error, [0, 0, 1, 1], [True, False, True, False])
    assert (float(result["pair_accuracy"]), int(result["n"])) == (0.0, 2)


def test_duplicates_of_a_padded_sampler_change_nothing() -> None:
    error = [[0.1], [0.5], [0.4], [0.3]]
    pair, possible = [0, 0, 1, 1], [True, False, True, False]
    once = updated(error, pair, possible)
    again = updated(error + error[:1], pair + pair[:1], possible + possible[:1])
    for name in ("pair_accuracy", "low", "high", "n"):
        assert_same(again[name], once[name], 0.0)


def test_fewer_than_ten_pairs_are_no_trouble() -> None:
    result = updated([[0.1], [0.5]], [0, 0], [True, False])
    assert (float(result["pair_accuracy"]), int(result["n"])) == (1.0, 1)
    assert 0 < float(result["low"]) < 1
    assert result["high"] == 1


def test_single_videos_are_judged_by_the_area_under_the_curve() -> None:
    rng = np.random.default_rng(0)
    error = rng.integers(0, 20, (300, 1)) / 7
    possible = rng.random(300) < 0.4
    result = updated(error, np.arange(300), possible)
    expected = roc_auc_score(~possible, error[:, 0])
    assert float(result["auroc"]) == pytest.approx(expected, abs=1e-12)
    assert int(result["n"]) == 0
    assert result["pair_accuracy"].isnan()
    assert (float(result["low"]), float(result["high"])) == (0.0, 1.0)
    assert int(result["n_excluded"]) == 300


def test_one_kind_alone_says_nothing() -> None:
    result = updated([[0.1], [0.2]], [0, 1], [True, True])
    assert result["pair_accuracy"].isnan()
    assert result["auroc"].isnan()


def test_capacity_is_kept() -> None:
    metric = Surprise(capacity=3)
    error, pair, possible = torch.rand(2, 2), torch.tensor([0, 0]), torch.tensor([True, False])
    metric.update(error, pair, possible)
    with pytest.raises(ValueError, match="capacity=3"):
        metric.update(error, pair, possible)
    assert metric.compute()["n"] == 1
