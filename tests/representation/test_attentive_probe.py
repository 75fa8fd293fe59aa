"""AttentiveProbe: a training run that depends on nothing but its rows and its seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.core import StreamingMetric
from dynmetrics.representation import AttentiveProbe, Probe, attentive_probe, linear_probe
from dynmetrics.representation.attentive_model import AttentiveClassifier
from tests.contract import Batch, MetricContract
from tests.golden_cases import Case, world_cases

CASES = world_cases("attentive_probe")
OPTIONS: dict[str, Any] = {"epochs": 2, "batch_size": 8, "num_heads": 2, "lr": 0.01}


class TestAttentiveProbe(MetricContract):
    optout: ClassVar[dict[str, str]] = {"counts_beyond_float32": "2^26 copies of rows do not fit"}

    def make(self) -> StreamingMetric:
        return AttentiveProbe(num_classes=3, **OPTIONS)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        batches = []
        sizes = ((9, "train"), (8, "test"), (0, "train"), (12, "train"), (1, "test"), (0, "test"))
        for n, split in sizes:
            target = rng.integers(0, 3, n)
            tokens = np.eye(4)[target][:, None] + 0.5 * rng.normal(size=(n, 2, 4))
            features = torch.tensor(tokens.astype(np.float32))
            batches.append({"features": features, "target": torch.tensor(target), "split": split})
        return batches

    def reference(self, batches: list[Batch]) -> Any:
        """A run on all rows at once: what a run should reach is tested by the golden cases."""
        parts: dict[str, tuple[Tensor, Tensor]] = {}
        for split in ("train", "test"):
            rows = [b["features"].float() for b in batches if b["split"] == split]
            labels = [b["target"] for b in batches if b["split"] == split]
            parts[split] = (
                torch.cat([torch.zeros(0, 2, 4), *rows]),
                torch.cat([torch.zeros(0, dtype=torch.int64), *labels]),
            )
        score = float("nan")
        if len(parts["train"][1]) and len(parts["test"][1]):
            score = attentive_probe(*parts["train"], *parts["test"], num_classes=3, **OPTIONS).score
        counts = {f"n_{split}": np.int64(len(labels)) for split, (_, labels) in parts.items()}
        return {"score": np.float64(score), **counts}

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {
            "features": torch.zeros(2, 2, 4),
            "target": torch.tensor([0, 1]),
            "split": "train",
        }
        return [(self.make(), AttentiveProbe(num_classes=3, **OPTIONS, seed=1), first)]

    def bad_inputs(self) -> list[Batch]:
        x, y = torch.zeros(2, 2, 4), torch.tensor([0, 1])
        return [
            {"features": x, "target": y, "split": "val"},
            {"features": x[:, 0], "target": y, "split": "train"},
            {"features": torch.zeros(2, 3, 4), "target": y, "split": "train"},
            {"features": torch.zeros(2, 2, 6), "target": y, "split": "test"},
            {"features": torch.zeros(2, 2, 5), "target": y, "split": "train"},
            {"features": x, "target": y[:1], "split": "train"},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: AttentiveProbe(num_classes=0),
            lambda: AttentiveProbe(num_classes=2, epochs=0),
            lambda: AttentiveProbe(num_classes=2, depth=0),
            lambda: AttentiveProbe(num_classes=2, lr=0.0),
            lambda: AttentiveProbe(num_classes=2, weight_decay=-1.0),
            lambda: AttentiveProbe(num_classes=2, patience=0),
            lambda: AttentiveProbe(num_classes=2, holdout=0.0),
            lambda: AttentiveProbe(num_classes=2, seed=None),  # type: ignore[arg-type]
            lambda: AttentiveProbe(num_classes=2, progress=1),  # type: ignore[arg-type]
            lambda: AttentiveProbe(num_classes=2, capacity=0),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return AttentiveClassifier(4, 3, 2, 2).eval(), [torch.rand(5, 2, 4)]


def tensors_of(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = [torch.tensor(case.inputs[f"{split}_x"]) for split in ("train", "test")]
    y = [torch.tensor(case.inputs[f"{split}_y"]) for split in ("train", "test")]
    return x[0], y[0], x[1], y[1]


def options_of(case: Case) -> dict[str, Any]:
    names = ("epochs", "batch_size", "lr", "weight_decay", "num_heads")
    return {name: case.params[name] for name in names}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("depth", [1, 2])
def test_golden_scores(case: Case, depth: int) -> None:
    train_x, train_y, test_x, test_y = tensors_of(case)
    expected = case.expected["recommended_default"]
    generator = torch.Generator().manual_seed(case.params["generator_seed"])
    probe = attentive_probe(
        train_x, train_y, test_x, test_y, **options_of(case), generator=generator, depth=depth
    )
    assert isinstance(probe.score, float)
    assert probe.score >= expected["min_score"]
    assert probe.predictions.shape == test_y.shape
    pooled = linear_probe(train_x.mean(1), train_y, test_x.mean(1), test_y).score
    assert pooled < expected["mean_pool_below"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden_scores_of_the_metric(case: Case) -> None:
    train_x, train_y, test_x, test_y = tensors_of(case)
    metric = AttentiveProbe(num_classes=int(train_y.max()) + 1, **options_of(case))
    metric.update(test_x, test_y, split="test")
    for part in torch.arange(len(train_x)).split(7):
        metric.update(train_x[part], train_y[part], split="train")
    result = metric.compute()
    assert float(result["score"]) >= case.expected["recommended_default"]["min_score"]
    assert (int(result["n_train"]), int(result["n_test"])) == (len(train_x), len(test_x))


def test_a_seed_decides_everything_and_the_global_generator_nothing() -> None:
    train_x, train_y, test_x, test_y = tensors_of(CASES[0])
    options = {**options_of(CASES[0]), "epochs": 1}
    runs: list[Probe] = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(runs))
        state = torch.get_rng_state()
        generator = torch.Generator().manual_seed(seed)
        runs.append(
            attentive_probe(train_x, train_y, test_x, test_y, **options, generator=generator)
        )
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(runs[0].predictions, runs[1].predictions)
    assert not torch.equal(runs[0].predictions, runs[2].predictions)


def test_patience_ends_a_training_that_learns_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(80, 2, 4, generator=generator)
    y = torch.randint(0, 2, (80,), generator=generator)
    options = {**OPTIONS, "epochs": 50, "holdout": 0.3, "progress": True}
    attentive_probe(x, y, x, y, **options, patience=2)
    bars = capsys.readouterr().err.split("\r")
    assert "1/50 loss" in bars[1]
    assert len(bars) < 40


def test_patience_without_a_held_out_row() -> None:
    x, y = torch.eye(2).repeat(2, 1).unsqueeze(1), torch.tensor([0, 1, 0, 1])
    probe = attentive_probe(x, y, x, y, num_heads=1, epochs=30, lr=0.03, patience=1, holdout=1e-6)
    assert probe.score == 1.0


def test_labels_out_of_range_and_rows_that_are_not_finite() -> None:
    x = torch.eye(2).repeat(4, 1).unsqueeze(1)
    y = torch.tensor([0, 1, 0, 1, 0, 1, 7, -1])
    metric = AttentiveProbe(num_classes=2, num_heads=1, epochs=30, lr=0.03)
    metric.update(x, y, split="train")
    bad = x.clone()
    bad[0] = torch.nan
    metric.update(bad, y, split="test")
    result = metric.compute()
    assert (int(result["n_train"]), int(result["n_test"])) == (6, 7)
    assert float(result["score"]) == pytest.approx(5 / 7)


def test_inference_mode_does_not_stop_the_training() -> None:
    x, y = torch.eye(2).repeat(4, 1).unsqueeze(1), torch.tensor([0, 1] * 4)
    metric = AttentiveProbe(num_classes=2, num_heads=1, epochs=30, lr=0.03)
    with torch.inference_mode():
        metric.update(x, y, split="train")
        metric.update(x, y, split="test")
        assert float(metric.compute()["score"]) == 1.0


def test_bytes() -> None:
    metric = AttentiveProbe(num_classes=2, num_heads=2, storage="float16", capacity=4)
    metric.update(torch.zeros(3, 5, 4), torch.tensor([0, 1, 0]), split="train")
    assert metric.memory_bytes() == 3 * (5 * 4 * 2 + 8 + 8) + 4 * 8
    with pytest.raises(ValueError, match="expected at most capacity=4 rows, got 6 rows"):
        metric.update(torch.zeros(3, 5, 4), torch.tensor([0, 1, 0]), split="train")


def test_no_rows_to_train_on() -> None:
    with pytest.raises(ValueError, match="train_x: expected at least 1 row"):
        attentive_probe(torch.zeros(0, 2, 8), torch.zeros(0), torch.zeros(1, 2, 8), torch.zeros(1))
