"""RolloutError under all laws, against the golden values, and where others go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.core import StreamingMetric
from dynmetrics.prediction import RolloutError, rollout_error
from dynmetrics.prediction.rollout import episode_errors
from tests.contract import Batch, MetricContract, assert_same
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import prediction as definition

CASES = world_cases("rollout_error")
every_case = pytest.mark.parametrize("case", CASES, ids=str)


def random_batches(seed: int, *, initial: bool = False) -> list[Batch]:
    """Episodes that end early, padded with NaN; T differs between batches."""
    rng = np.random.default_rng(seed)
    batches = []
    for b, t in ((3, 4), (1, 1), (0, 3), (4, 6)):
        target = torch.tensor(rng.normal(size=(b, t, 2, 3)))
        preds = target + torch.tensor(rng.normal(size=(b, t, 2, 3)))
        mask = torch.arange(t) < torch.tensor(rng.integers(1, t + 1, (b, 1)))
        preds[~mask] = torch.nan
        batch = {"preds": preds, "target": target, "mask": mask}
        if initial:
            batch["initial"] = torch.tensor(rng.normal(size=(b, 2, 3)))
        batches.append(batch)
    return batches


def episodes_of(batches: list[Batch]) -> list[dict[str, Any]]:
    return [
        {name: value.detach().numpy() for name, value in zip(batch, values, strict=True)}
        for batch in batches
        for values in zip(*batch.values(), strict=True)
    ]


def padded_reference(batches: list[Batch], **options: Any) -> dict[str, Any]:
    """The reference, with steps that no episode has where only an empty batch goes that far."""
    result = definition.rollout_error(episodes_of(batches), **options)
    missing = max(batch["preds"].shape[1] for batch in batches) - len(result["n"])
    for name, fill in (("error", np.nan), ("se", np.nan), ("n", 0)):
        result[name] = np.pad(result[name], (0, missing), constant_values=fill)
    return result


class TestErrors(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"se"}
    options: ClassVar[dict[str, Any]] = {"threshold": 1.2}

    def make(self) -> StreamingMetric:
        return RolloutError(**self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        return random_batches(seed)

    def reference(self, batches: list[Batch]) -> Any:
        return padded_reference(batches, **self.options)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"preds": torch.zeros(1, 1, 2, 3), "target": torch.zeros(1, 1, 2, 3)}
        return [
            (RolloutError(), RolloutError(p=2), first),
            (RolloutError(p=2), RolloutError(p=2, root=True), first),
            (RolloutError(), RolloutError(distance="cosine"), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        target = torch.rand(2, 3, 4)
        return [
            {"preds": target, "target": target[:, :2]},
            {"preds": target[0, 0], "target": target[0, 0]},
            {"preds": target[..., :0], "target": target[..., :0]},
            {"preds": target, "target": target, "mask": torch.ones(2, 3)},
            {"preds": target, "target": target, "mask": torch.ones(3, 2) > 0},
            {"preds": target.tolist(), "target": target},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: RolloutError(p=0),
            lambda: RolloutError(p=True),
            lambda: RolloutError(root=1),  # type: ignore[arg-type]
            lambda: RolloutError(normalize="variance"),
            lambda: RolloutError(distance="l2"),
            lambda: RolloutError(distance="cosine", p=2),
            lambda: RolloutError(distance="cosine", root=True),
            lambda: RolloutError(threshold=-1.0),
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return episode_errors, [*torch.rand(2, 3, 4, 5), None, 1, "lp"]


class TestRootOverPersistence(TestErrors):
    half_atol: ClassVar[float] = 3e-6
    options: ClassVar[dict[str, Any]] = {
        "p": 2,
        "root": True,
        "normalize": "persistence",
        "threshold": 0.75,
    }

    def batches(self, seed: int = 0) -> list[Batch]:
        return random_batches(seed, initial=True)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"preds": torch.zeros(1, 1, 2, 3), "target": torch.zeros(1, 1, 2, 3)}
        one = RolloutError(normalize="persistence")
        return [(one, RolloutError(normalize="persistence", p=3), first)]

    def bad_inputs(self) -> list[Batch]:
        target = torch.rand(2, 3, 4)
        return [
            {"preds": target, "target": target, "initial": target},
            {"preds": target, "target": target, "initial": target[:1, 0]},
            {"preds": target, "target": target, "initial": 0},
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        preds, target = torch.rand(2, 3, 4, 5)
        return episode_errors, [preds, target, target[:, :1], 2.5, "lp"]


class TestCosine(TestErrors):
    half_atol: ClassVar[float] = 1e-6
    options: ClassVar[dict[str, Any]] = {"distance": "cosine"}

    def batches(self, seed: int = 0) -> list[Batch]:
        batches = random_batches(seed)
        batches[0]["preds"][0, 0, 0] = 0.0
        return batches

    def bad_inputs(self) -> list[Batch]:
        return [{"preds": torch.rand(2, 3), "target": torch.rand(2, 3)}]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return episode_errors, [*torch.rand(2, 3, 4, 5), None, 1, "cosine"]


@pytest.mark.parametrize("p", [0.5, 1, 2, 3])
@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("normalize", ["none", "persistence"])
def test_every_option_against_the_definition(p: float, root: bool, normalize: str) -> None:
    options: dict[str, Any] = {"p": p, "root": root, "normalize": normalize, "threshold": 1.0}
    metric = RolloutError(**options)
    batches = random_batches(3)
    for batch in batches:
        metric.update(**batch)
    assert_same(metric.compute(), padded_reference(batches, **options), 1e-9)
    del options["threshold"]
    preds, target, mask = batches[-1].values()
    curve = rollout_error(preds, target, mask=mask, **options)
    assert_same(curve, padded_reference(batches[-1:], **options)["error"], 1e-9)


# ---------------------------------------------------------------------------- golden values


def trajectories_of(case: Case) -> tuple[Tensor, ...]:
    names = [name for name in ("pred", "target", "mask") if name in case.inputs]
    values = [torch.tensor(case.inputs[name]) for name in names]
    return (*values[:2], *(mask.bool() for mask in values[2:]))


@every_case
def test_in_one_call(case: Case) -> None:
    pred, target, *mask = trajectories_of(case)
    curve = rollout_error(pred, target, **case.params, mask=mask[0] if mask else None)
    assert curve.dtype is torch.float32
    case.check(curve, case.expected["recommended_default"])


@every_case
@pytest.mark.parametrize("route", ROUTES)
def test_streams(case: Case, route: str) -> None:
    result = feed(lambda: RolloutError(**case.params), [trajectories_of(case)], route).compute()
    case.check(result["error"], case.expected["recommended_default"])
    expected = case.expected["references"].get("counts")
    if expected is not None:
        assert result["n"].tolist() == expected


# ---------------------------------------------------------------------------- known traps


def test_padding_of_ended_episodes_does_not_count() -> None:
    """Padded by zeros, as some do, or by NaN: the ended episode has no say in later steps."""
    target = torch.ones(2, 3, 4)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    for padding in (0.0, torch.nan):
        pred = torch.full((2, 3, 4), 2.0)
        pred[1, 1:] = padding
        assert rollout_error(pred, target, mask=mask).tolist() == [1.0, 1.0, 1.0]


def test_batches_of_any_size_weigh_by_their_episodes() -> None:
    """Errors .1 six times and .3 once in batches of 6 and 1: 9/70, and no mean of batch means."""
    error = torch.tensor([0.1] * 6 + [0.3], dtype=torch.float64).view(7, 1)
    metric = RolloutError()
    for part in torch.split(error, [6, 1]):
        metric.update(part, torch.zeros_like(part))
    assert float(metric.compute()["overall"]) == pytest.approx(9 / 70, abs=1e-12)


def test_episodes_are_the_sample_of_the_standard_error() -> None:
    """Whatever an episode has of tokens and channels, it is one observation."""
    error = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    metric, wide = RolloutError(), RolloutError()
    metric.update(error, torch.zeros(3, 1))
    wide.update(error[..., None].expand(3, 1, 50), torch.zeros(3, 1, 50))
    expected = np.std([1.0, 2.0, 4.0], ddof=1) / np.sqrt(3)
    for result in (metric.compute(), wide.compute()):
        assert float(result["se"][0]) == pytest.approx(expected, abs=1e-12)


def test_standard_errors_of_quotients_and_roots_cover() -> None:
    """The delta method against the spread of many repeated experiments."""
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"p": 2, "root": True, "normalize": "persistence"}
    values, errors = [], []
    for _ in range(300):
        target = torch.randn(60, 2, 3, generator=generator, dtype=torch.float64).cumsum(1)
        pred = target + 0.5 * torch.randn(60, 2, 3, generator=generator, dtype=torch.float64)
        metric = RolloutError(**options)
        metric.update(pred, target, initial=torch.zeros(60, 3))
        result = metric.compute()
        values.append(result["error"])
        errors.append(result["se"])
    spread, claimed = torch.stack(values).std(0), torch.stack(errors).mean(0)
    torch.testing.assert_close(claimed, spread, rtol=0.15, atol=0)


def test_persistence_scores_one_and_a_perfect_model_zero() -> None:
    target = torch.randn(5, 4, 3, dtype=torch.float64)
    for pred, expected in ((target[:, :1].expand_as(target), 1.0), (target, 0.0)):
        metric = RolloutError(normalize="persistence")
        metric.update(pred, target)
        result = metric.compute()
        assert result["error"].isnan().tolist() == [True, False, False, False]
        torch.testing.assert_close(result["error"][1:], torch.full((3,), expected).double())
        assert float(result["overall"]) == pytest.approx(expected)


def test_the_first_step_above_a_threshold() -> None:
    error = torch.tensor([[0.1, 0.5, 0.4, 0.9]])
    for threshold, expected in ((0.05, 0.0), (0.45, 1.0), (0.5, 3.0)):
        metric = RolloutError(threshold=threshold)
        metric.update(error, torch.zeros(1, 4))
        assert metric.compute()["first_above"] == expected
    metric = RolloutError(threshold=2.0)
    metric.update(error, torch.zeros(1, 4))
    assert metric.compute()["first_above"].isnan()
    # A model that diverged is above any threshold.
    metric.update(torch.tensor([[0.0, 0.0, torch.nan]]), torch.zeros(1, 3))
    assert metric.compute()["first_above"] == 2


def test_area_is_by_trapezoids() -> None:
    metric = RolloutError()
    metric.update(torch.tensor([[1.0, 3.0, 5.0]]), torch.zeros(1, 3))
    assert metric.compute()["area"] == 6
    metric.reset()
    metric.update(torch.tensor([[1.0]]), torch.zeros(1, 1))
    assert metric.compute()["area"] == 0


def test_is_differentiable() -> None:
    pred, target = torch.rand(2, 3, 4, 2, dtype=torch.float64)
    pred.requires_grad_()
    for options in ({"p": 2, "root": True}, {"distance": "cosine"}):
        torch.autograd.gradcheck(lambda x, o=options: rollout_error(x, target, **o), (pred,))


def test_persistence_of_a_masked_first_step() -> None:
    """What is masked may be anything: the first step that counts is repeated."""
    target = torch.tensor([[torch.nan, 1.0, 3.0], [0.0, 2.0, 6.0]])
    preds = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 4.0]])
    mask = torch.tensor([[False, True, True], [True, True, True]])
    metric = RolloutError(normalize="persistence")
    metric.update(preds, target, mask=mask)
    # Errors (1: -, 0, 1; 2: 0, 1, 2) over those of repeating 1 and 0 (-, 0, 2; 0, 2, 6).
    expected = torch.tensor([torch.nan, 0.5, 3 / 8])
    torch.testing.assert_close(metric.compute()["error"].float(), expected, equal_nan=True)
    curve = rollout_error(preds, target, mask=mask, normalize="persistence")
    torch.testing.assert_close(curve, expected, equal_nan=True)
    assert float(metric.compute()["overall"]) == pytest.approx(4 / 10)


@pytest.mark.parametrize("scale", [1e-38, 1e-25, 1e-9, 1e9, 1e25, 1e38])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cosine_has_no_scale(scale: float, dtype: torch.dtype) -> None:
    preds = scale * torch.tensor([[[1.0, 0.0], [1.0, 1.0]]], dtype=dtype)
    target = scale * torch.tensor([[[0.0, 1.0], [1.0, 0.0]]], dtype=dtype)
    metric = RolloutError(distance="cosine")
    metric.update(preds, target)
    expected = [1.0, 1 - 0.5**0.5]
    # A float32 of 1e-38 has few digits left.
    assert metric.compute()["error"].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_squares_beyond_float32(scale: float) -> None:
    preds = scale * torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    metric = RolloutError(p=2, root=True)
    metric.update(preds, torch.zeros(2, 2))
    expected = [scale * 5**0.5, scale * 10**0.5]
    assert metric.compute()["error"].tolist() == pytest.approx(expected, rel=1e-6)
