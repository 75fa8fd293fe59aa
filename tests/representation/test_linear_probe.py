"""LinearProbe: regression from moments, classification from rows and from moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor

from dynmetrics.core import StreamingMetric
from dynmetrics.representation import LinearProbe, linear_probe
from dynmetrics.representation.linear_classifier import fit_classifier
from dynmetrics.representation.logistic import fit_logistic
from dynmetrics.representation.ridge import determination, fit_ridge
from dynmetrics.representation.splits import held_out
from tests.contract import Batch, MetricContract, fed
from tests.golden_cases import Case, world_cases
from tests.reference import representation_probes as definition

CASES = world_cases("linear_probe")


def split_of(batches: list[Batch], split: str, width: int) -> tuple[Any, Any]:
    rows = [np.zeros((0, width))]
    targets = []
    for batch in batches:
        if batch["split"] == split:
            rows.append(batch["features"].numpy().astype(np.float64))
            targets.append(batch["target"].numpy())
    return np.concatenate(rows), np.concatenate(targets) if targets else np.zeros(0)


class _Probe(MetricContract):
    optout: ClassVar[dict[str, str]] = {"counts_beyond_float32": "2^26 copies of rows do not fit"}
    width = 3

    def targets(self, features: Any, rng: np.random.Generator) -> Any:
        scores = features @ np.array([[1.0, -1, 0], [0, 2, -1], [0.5, 0, 1]])
        return np.argmax(scores + 0.3 * rng.normal(size=scores.shape), axis=1)

    def batches(self, seed: int = 0) -> list[Batch]:
        rng = np.random.default_rng(seed)
        batches = []
        sizes = ((9, "train"), (8, "test"), (0, "train"), (12, "train"), (1, "test"), (0, "test"))
        for n, split in sizes:
            features = rng.normal(size=(n, self.width)).astype(np.float32).astype(np.float64)
            target = torch.tensor(self.targets(features, rng))
            batches.append({"features": torch.tensor(features), "target": target, "split": split})
        return batches

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {
            "features": torch.zeros(2, self.width),
            "target": torch.tensor([0, 1]),
            "split": "train",
        }
        return [
            (LinearProbe(), LinearProbe(ridge=0.1), first),
            (LinearProbe(), LinearProbe(iterations=1), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        x, y = torch.zeros(2, self.width), torch.tensor([0, 1])
        return [
            {"features": x, "target": y, "split": "val"},
            {"features": x, "target": y, "split": None},
            {"features": torch.zeros(2, 5), "target": y, "split": "train"},
            {"features": torch.zeros(2, 5), "target": y, "split": "test"},
            {"features": x, "target": torch.zeros(3), "split": "train"},
            {"features": x, "target": None, "split": "train"},
            {"features": x.long(), "target": y, "split": "train"},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: LinearProbe(task="both"),
            lambda: LinearProbe(solver="sgd"),
            lambda: LinearProbe(ridge=-1.0),
            lambda: LinearProbe(ridge=()),
            lambda: LinearProbe(ridge="auto"),  # type: ignore[arg-type]
            lambda: LinearProbe(solver="moments"),
            lambda: LinearProbe(num_classes=0),
            lambda: LinearProbe(iterations=0),
            lambda: LinearProbe(capacity=0),
            lambda: LinearProbe(holdout=1.0),
            lambda: LinearProbe(average="weighted"),
            lambda: LinearProbe(storage="int8"),
            lambda: LinearProbe(products="tf32"),
            lambda: LinearProbe(penalize_bias=None),  # type: ignore[arg-type]
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return torch.mean, [torch.ones(3)]

    def counts(self, batches: list[Batch]) -> dict[str, Any]:
        sizes = {s: len(split_of(batches, s, self.width)[0]) for s in ("train", "test")}
        return {f"n_{split}": np.int64(n) for split, n in sizes.items()}


class TestClassification(_Probe):
    def make(self) -> StreamingMetric:
        return LinearProbe(ridge=0.01, average="macro")

    def reference(self, batches: list[Batch]) -> Any:
        train_x, train_y = split_of(batches, "train", self.width)
        test_x, test_y = split_of(batches, "test", self.width)
        score = float("nan")
        if len(train_x) and len(test_x):
            said = definition.logistic_predictions(train_x, train_y, test_x, 0.01)
            score = definition.accuracy(said, test_y, "macro")
        return {"score": np.float64(score), **self.counts(batches)}

    def bad_inputs(self) -> list[Batch]:
        x = torch.zeros(2, self.width)
        more = [
            {"features": x, "target": torch.tensor([0.5, 1.0]), "split": "train"},
            {"features": x, "target": torch.zeros(2, 1), "split": "train"},
        ]
        return [*super().bad_inputs(), *more]


class TestClassificationFromMoments(_Probe):
    def make(self) -> StreamingMetric:
        return LinearProbe(ridge=0.01, solver="moments", num_classes=4)

    def reference(self, batches: list[Batch]) -> Any:
        train_x, train_y = split_of(batches, "train", self.width)
        test_x, test_y = split_of(batches, "test", self.width)
        score = float("nan")
        if len(train_x) and len(test_x):
            one_hot = np.eye(4)[train_y.astype(int)]
            said = definition.ridge_predictions(train_x, one_hot, test_x, 0.01).argmax(1)
            score = definition.accuracy(said, test_y)
        return {"score": np.float64(score), **self.counts(batches)}


class TestRegression(_Probe):
    optout: ClassVar[dict[str, str]] = {
        "counts_beyond_float32": "standard deviations are with N - 1",
    }
    half_atol = 1e-6

    def make(self) -> StreamingMetric:
        return LinearProbe(task="regression", ridge=0.01)

    def targets(self, features: Any, rng: np.random.Generator) -> Any:
        wide = features @ np.array([[1.0, -1], [0, 2], [0.5, 0]]) + 7
        return wide + 0.3 * rng.normal(size=wide.shape)

    def reference(self, batches: list[Batch]) -> Any:
        train_x, train_y = split_of(batches, "train", self.width)
        test_x, test_y = split_of(batches, "test", self.width)
        score = float("nan")
        if len(train_x) > 1 and len(test_x) > 1:
            said = definition.ridge_predictions(train_x, train_y, test_x, 0.01)
            score = definition.r2(said, test_y)
        return {"score": np.float64(score), **self.counts(batches)}

    def bad_inputs(self) -> list[Batch]:
        bad = super().bad_inputs()
        for batch in bad:
            if isinstance(batch["target"], Tensor) and len(batch["target"]) == 2:
                batch["target"] = torch.zeros(2, 2)
        x = torch.zeros(2, self.width)
        return [*bad, {"features": x, "target": torch.zeros(2, 3), "split": "train"}]

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {
            "features": torch.zeros(2, self.width),
            "target": torch.zeros(2, 2),
            "split": "train",
        }
        one = LinearProbe(task="regression")
        return [(one, LinearProbe(task="regression", penalize_bias=True), first)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        packed = torch.eye(6, dtype=torch.float64) * 5
        linear = fit_ridge(packed, 3, [0.1])[0]
        return lambda test: determination(test, linear), [packed]


# ---------------------------------------------------------------------------- golden values


def tensors_of(case: Case) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    x = [torch.tensor(case.inputs[f"{split}_x"]) for split in ("train", "test")]
    y = [torch.tensor(case.inputs[f"{split}_y"]) for split in ("train", "test")]
    return x[0], y[0], x[1], y[1]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_golden_values(case: Case) -> None:
    train_x, train_y, test_x, test_y = tensors_of(case)
    ridge = case.params["ridge"]
    expected = case.expected["recommended_default"]
    probe = linear_probe(train_x, train_y, test_x, test_y, ridge)
    assert isinstance(probe.score, float)
    case.check(probe.score, expected["score"])
    case.check(probe.predictions, expected["predictions"])
    task = "regression" if case.params["kind"] == "reg" else "classification"
    for parts in (1, 4):
        metric = LinearProbe(task=task, ridge=ridge)
        for split, x, y in (("test", test_x, test_y), ("train", train_x, train_y)):
            for features, target in zip(x.tensor_split(parts), y.tensor_split(parts), strict=True):
                metric.update(features, target, split=split)
        result = metric.compute()
        case.check(result["score"], expected["score"])
        assert (int(result["n_train"]), int(result["n_test"])) == (len(train_x), len(test_x))


@pytest.mark.parametrize("case", [c for c in CASES if c.params["kind"] == "reg"], ids=str)
def test_golden_values_with_a_penalised_intercept(case: Case) -> None:
    probe = linear_probe(*tensors_of(case), case.params["ridge"], penalize_bias=True)
    expected = case.expected["torch_world"]
    case.check(probe.score, expected["score"])
    case.check(probe.predictions, expected["predictions"])


# ---------------------------------------------------------------------------- regression


@pytest.mark.parametrize("ridge", [1e-4, 1e-2, 1.0])
def test_large_means_and_scales_of_all_sizes(ridge: float) -> None:
    """Raw sums in float32 would read nothing here."""
    rng = np.random.default_rng(0)
    scales = np.logspace(-3, 3, 7)
    x = 1e4 + rng.normal(size=(500, 7)) * scales
    y = 1e4 + (x - 1e4) / scales @ rng.normal(size=(7, 2)) + rng.normal(size=(500, 2))
    metric = LinearProbe(task="regression", ridge=ridge)
    for split, rows in (("train", slice(0, 400)), ("test", slice(400, 500))):
        for a, b in zip(np.array_split(x[rows], 7), np.array_split(y[rows], 7), strict=True):
            metric.update(torch.tensor(a), torch.tensor(b), split=split)
    centre, sd = x[:400].mean(0), x[:400].std(0, ddof=1)
    model = Ridge(alpha=ridge * 400, solver="svd").fit((x[:400] - centre) / sd, y[:400])
    said = model.predict((x[400:] - centre) / sd)
    expected = definition.r2(said, y[400:])
    assert float(metric.compute()["score"]) == pytest.approx(expected, rel=1e-7)
    assert metric.memory_bytes() == 8 * (2 * 10 * 10 + 7)
    features, target = torch.tensor(x), torch.tensor(y)
    probe = linear_probe(features[:400], target[:400], features[400:], target[400:], ridge)
    np.testing.assert_allclose(probe.predictions, said, rtol=1e-8)


def test_a_penalised_intercept_misses_targets_far_from_zero() -> None:
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    y = x @ torch.tensor([1.0, 2.0, -1.0]) + 210
    assert linear_probe(x, y, x, y, 0.1).score > 0.98
    assert linear_probe(x, y, x, y, 0.1, penalize_bias=True).score < -10


def test_a_constant_feature_that_moves_in_the_test_split() -> None:
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    y = x[:, 0].clone()
    train, test = torch.cat([x, torch.full((100, 1), 0.1)], 1), torch.cat([x, x[:, :1] + 5], 1)
    assert linear_probe(train, y, test, y).score > 0.999
    labels = (y > 0).long()
    assert linear_probe(train, labels, test, labels).score > 0.95


@pytest.mark.parametrize("value", [0.1, 0.0, 1e4])
def test_a_constant_test_target(value: float) -> None:
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    y = torch.full((50,), value, dtype=torch.float64)
    assert linear_probe(x, y, x, y).score == 1.0
    assert linear_probe(x, y, x, y + 1).score == 0.0


def test_small_targets_and_nan_targets() -> None:
    x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double()
    y = 1e-8 * (x[:, 0] + 0.5 * x[:, 1] ** 2)
    assert linear_probe(x, y, x, y).score == pytest.approx(
        linear_probe(x, 1e8 * y, x, 1e8 * y).score, rel=1e-9
    )
    y[3] = torch.nan
    assert np.isnan(linear_probe(x, y, x, y).score)


def test_products_in_float32() -> None:
    x = torch.randn(500, 20, generator=torch.Generator().manual_seed(0)) + 100
    y = x @ torch.ones(20) + torch.randn(500, generator=torch.Generator().manual_seed(1))
    exact = linear_probe(x[:400], y[:400], x[400:], y[400:])
    mixed = linear_probe(x[:400], y[:400], x[400:], y[400:], products="float32")
    assert mixed.score == pytest.approx(exact.score, abs=1e-5)


# ---------------------------------------------------------------------------- choice of a penalty


def test_the_penalty_that_serves_the_held_out_part_best() -> None:
    """With 60 noisy features for 80 rows, no penalty at all overfits."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 60, generator=generator, dtype=torch.float64)
    y = x[:, 0] + 2 * torch.randn(400, generator=generator, dtype=torch.float64)
    ridges = (1e-6, 1e-2, 1.0, 10.0)
    results = []
    for order in (torch.arange(80), torch.randperm(80, generator=generator)):
        metric = LinearProbe(task="regression", ridge=ridges, holdout=0.3)
        for part in order.split(9):
            metric.update(x[part], y[part], split="train")
        metric.update(x[80:], y[80:], split="test")
        results.append(metric.compute())
    assert set(results[0]) == {"score", "n_train", "n_test", "ridge"}
    held = held_out(x[:80], y[:80, None], 0.3)
    scores = [
        definition.r2(
            definition.ridge_predictions(x[:80][~held].numpy(), y[:80][~held, None].numpy(),
                                         x[:80][held].numpy(), ridge),
            y[:80][held, None].numpy(),
        )
        for ridge in ridges
    ]  # fmt: skip
    chosen = ridges[int(np.argmax(scores))]
    said = definition.ridge_predictions(
        x[:80].numpy(), y[:80, None].numpy(), x[80:].numpy(), chosen
    )
    for result in results:
        assert float(result["ridge"]) == chosen > 1e-6
        expected = definition.r2(said, y[80:, None].numpy())
        assert float(result["score"]) == pytest.approx(expected, rel=1e-9)
        assert int(result["n_train"]) == 80


@pytest.mark.parametrize("solver", ["lbfgs", "moments"])
def test_a_choice_for_classes(solver: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 40, generator=generator)
    y = (x[:, 0] + torch.randn(300, generator=generator) > 0).long()
    metric = LinearProbe(ridge=(1e-5, 1.0), solver=solver, num_classes=2, holdout=0.3)
    metric.update(x[:100], y[:100], split="train")
    metric.update(x[100:], y[100:], split="test")
    result = metric.compute()
    assert float(result["ridge"]) in (1e-5, 1.0)
    alone = LinearProbe(ridge=float(result["ridge"]), solver=solver, num_classes=2)
    alone.update(x[:100], y[:100], split="train")
    alone.update(x[100:], y[100:], split="test")
    assert result["score"] == alone.compute()["score"]
    assert metric.axes == dict.fromkeys(result, ())


def test_rows_are_held_out_evenly() -> None:
    x = torch.randn(5000, 2, generator=torch.Generator().manual_seed(0))
    held = held_out(x, torch.zeros(5000, dtype=torch.int64), 0.2)
    assert abs(int(held.sum()) - 1000) < 4 * np.sqrt(800)


# ---------------------------------------------------------------------------- classification


@pytest.mark.parametrize(("classes", "ridge"), [(2, 1e-3), (5, 1e-2), (30, 1e-4)])
@pytest.mark.parametrize("storage", ["float32", "float64"])
def test_the_objective_of_scikit_learn(classes: int, ridge: float, storage: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 12, generator=generator, dtype=torch.float64)
    x = x @ torch.randn(12, 12, generator=generator, dtype=torch.float64) + 5
    scores = x @ torch.randn(12, classes, generator=generator, dtype=torch.float64)
    noise = torch.rand(600, classes, generator=generator, dtype=torch.float64)
    y = (scores - 2 * (-noise.log()).log()).argmax(1)
    classes = len(y.unique())
    standard = (x - x.mean(0)) / x.std(0)
    model = LogisticRegression(C=1 / (2 * 600 * ridge), tol=1e-10, max_iter=5000)
    model.fit(standard.numpy(), y.numpy())
    ours = fit_classifier(x.to(getattr(torch, storage)), y, ridge, 500)
    weights = ours.linear.weights * x.std(0)[:, None]

    def objective(w: Tensor, b: Tensor) -> float:
        scores = standard @ w + b
        places = torch.unique(y, return_inverse=True)[1]
        loss = torch.nn.functional.cross_entropy(scores, places)
        return float(loss + ridge * w.square().sum())

    coefficients = torch.tensor(model.coef_).T.double()
    intercepts = torch.tensor(model.intercept_).double()
    if classes == 2:
        coefficients = torch.cat([-coefficients / 2, coefficients / 2], 1)
        intercepts = torch.stack([-intercepts[0] / 2, intercepts[0] / 2])
    reached = objective(weights, ours.linear.intercept)
    tolerance = 1e-6 if storage == "float32" else 1e-9
    assert reached <= objective(coefficients, intercepts) + tolerance


def test_a_wrong_kind_of_data() -> None:
    x, y = torch.zeros(3, 2), torch.tensor([0, 1, 0])
    with pytest.raises(ValueError, match="train_x: expected at least 2 rows"):
        linear_probe(x[:1], y[:1].float(), x, y.float())
    with pytest.raises(ValueError, match="target: expected the shape"):
        linear_probe(x, y[:2], x, y)


def test_labels_that_are_masked_or_out_of_range() -> None:
    x = torch.tensor([[-1.0], [-2.0], [1.0], [2.0], [9.0], [-9.0]])
    y = torch.tensor([0, 0, 1, 1, -1, 7])
    for solver in ("lbfgs", "moments"):
        metric = LinearProbe(solver=solver, num_classes=2)
        metric.update(x, y, split="train")
        metric.update(x[:4], torch.tensor([0, -3, 1, 7]), split="test")
        result = metric.compute()
        assert (int(result["n_train"]), int(result["n_test"])) == (4, 3)
        assert float(result["score"]) == pytest.approx(2 / 3)


def test_rows_that_are_not_finite() -> None:
    x = torch.tensor([[-1.0], [-2.0], [1.0], [2.0], [torch.nan], [torch.inf]])
    y = torch.tensor([0, 0, 1, 1, 0, 1])
    metric = LinearProbe()
    metric.update(x, y, split="train")
    metric.update(x, y, split="test")
    result = metric.compute()
    assert (int(result["n_train"]), int(result["n_test"])) == (4, 6)
    assert float(result["score"]) == pytest.approx(4 / 6)


def test_capacity_and_bytes() -> None:
    x, y = torch.zeros(4, 8), torch.zeros(4, dtype=torch.int64)
    metric = LinearProbe(capacity=6, storage="float16")
    metric.update(x, y, split="train")
    assert metric.memory_bytes() == 4 * (8 * 2 + 8 + 8) + 8 * 8
    with pytest.raises(ValueError, match="expected at most capacity=6 rows, got 8 rows"):
        metric.update(x, y, split="train")
    metric.update(x, y, split="test")
    assert float(metric.compute()["score"]) == 1.0


def test_the_logistic_fit_is_at_the_minimum() -> None:
    """The gradient there is 0, by automatic differentiation."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 5, generator=generator, dtype=torch.float64)
    y = (x[:, 0] + torch.randn(200, generator=generator) > 0).long() + (x[:, 1] > 1).long()
    w, b = (value.requires_grad_() for value in fit_logistic(x, y, 3, 0.01, 200))
    loss = torch.nn.functional.cross_entropy(x @ w + b, y) + 0.01 * w.square().sum()
    for gradient in torch.autograd.grad(loss, [w, b]):
        assert gradient.abs().max() < 1e-7


def test_nothing_to_train_on() -> None:
    metric = fed(LinearProbe(), [])
    metric.update(torch.zeros(3, 2), torch.tensor([0, 1, 0]), split="test")
    result = metric.compute()
    assert result["score"].isnan()
    assert (int(result["n_train"]), int(result["n_test"])) == (0, 3)


@pytest.mark.parametrize("solver", ["lbfgs", "moments"])
def test_a_label_above_the_classes_trains_nothing_and_is_missed(solver: str) -> None:
    x = torch.tensor([[0.0], [1.0], [4.0], [5.0], [50.0]])
    target = torch.tensor([0, 0, 1, 1, 2])
    metric = LinearProbe(solver=solver, num_classes=2)
    metric.update(x, target, split="train")
    metric.update(x, target, split="test")
    result = metric.compute()
    assert [float(result[name]) for name in ("score", "n_train", "n_test")] == [0.8, 4, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e18, 1e30])
def test_the_scale_of_features_decides_nothing(scale: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator, dtype=dtype)
    target = (x[:, 0] + 0.3 * x[:, 1] > 0).long()
    scores = {
        factor: [
            linear_probe(factor * x, y, factor * x, y).score for y in (target, x[:, 0] + x[:, 2])
        ]
        for factor in (1.0, scale)
    }
    assert scores[scale] == pytest.approx(scores[1.0], rel=1e-6)
