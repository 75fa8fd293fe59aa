"""PSNR under all laws, against the golden values, and where others go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from skimage.metrics import peak_signal_noise_ratio
from torchmetrics.image import PeakSignalNoiseRatio

from dynmetrics.core import StreamingMetric
from dynmetrics.prediction import PSNR, psnr
from dynmetrics.prediction.peak_signal import CHUNK, mean_squared_errors
from tests.contract import Batch, MetricContract
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import prediction as definition

CASES = world_cases("psnr")
every_case = pytest.mark.parametrize("case", CASES, ids=str)


class TestMean(MetricContract):
    depends_on_n: ClassVar[set[str]] = {"se"}

    def make(self) -> StreamingMetric:
        return PSNR(data_range=2.0, max_db=30.0)

    def batches(self, seed: int = 0) -> list[Batch]:
        """Images of several sizes, some perfect, some that do not count."""
        rng = np.random.default_rng(seed)
        batches = []
        for n, size in ((3, (1, 4, 5)), (1, (3, 2, 2)), (0, (1, 3, 3)), (5, (2, 3, 4))):
            target = torch.tensor(rng.random((n, *size)))
            preds = target + torch.tensor(rng.normal(size=(n, *size))) * 0.2
            preds[::4] = target[::4]
            batches.append(
                {"preds": preds, "target": target, "mask": torch.tensor(rng.random(n) < 0.8)}
            )
        return batches

    def pairs(self, batches: list[Batch]) -> list[tuple[Any, Any]]:
        return [
            (pred.numpy(), target.numpy())
            for batch in batches
            for pred, target, counts in zip(*map(_detached, batch.values()), strict=True)
            if counts
        ]

    def reference(self, batches: list[Batch]) -> Any:
        return definition.psnr(self.pairs(batches), 2.0, max_db=30.0)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        first = {"preds": torch.zeros(1, 1, 1, 1), "target": torch.zeros(1, 1, 1, 1)}
        return [
            (PSNR(data_range=1.0), PSNR(data_range=2.0), first),
            (PSNR(data_range=1.0), PSNR(data_range=1.0, max_db=50), first),
        ]

    def bad_inputs(self) -> list[Batch]:
        image = torch.rand(2, 1, 3, 3)
        return [
            {"preds": image, "target": image[:1]},
            {"preds": image[0, 0], "target": image[0, 0]},
            {"preds": image[..., :0], "target": image[..., :0]},
            {"preds": image.numpy(), "target": image},
            {"preds": image, "target": image, "mask": torch.tensor([True])},
            {"preds": image, "target": image, "mask": torch.ones(2)},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: PSNR(data_range=0),
            lambda: PSNR(data_range="1"),  # type: ignore[arg-type]
            lambda: PSNR(data_range=float("inf")),
            lambda: PSNR(data_range=1, reduction="none"),
            lambda: PSNR(data_range=1, max_db=-1),
            lambda: PSNR(data_range=1, by_step=1),  # type: ignore[arg-type]
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return mean_squared_errors, [torch.rand(3, 2, 4, 5), torch.rand(3, 2, 4, 5)]


class TestPooledBySteps(MetricContract):
    def make(self) -> StreamingMetric:
        return PSNR(data_range=1.0, reduction="pooled", by_step=True)

    def batches(self, seed: int = 0) -> list[Batch]:
        """Videos (B, T, C, H, W); T differs between batches."""
        rng = np.random.default_rng(seed)
        return [
            {
                "preds": torch.tensor(rng.random((b, t, 1, 2, 3))),
                "target": torch.tensor(rng.random((b, t, 1, 2, 3))),
            }
            for b, t in ((2, 3), (1, 1), (0, 2), (4, 5))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        steps = max(batch["preds"].shape[1] for batch in batches)
        curves = []
        for t in range(steps):
            there = [batch for batch in batches if t < batch["preds"].shape[1]]
            pairs = [
                (pred[t].numpy(), target[t].numpy())
                for batch in there
                for pred, target in zip(*map(_detached, batch.values()), strict=True)
            ]
            curves.append(definition.psnr(pairs, 1.0, "pooled"))
        return {name: np.array([curve[name] for curve in curves]) for name in curves[0]}

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        video = torch.rand(1, 1, 1, 2, 2)
        return [
            (
                PSNR(data_range=1.0, reduction="pooled"),
                PSNR(data_range=1.0, reduction="pooled", by_step=True),
                {"preds": video, "target": video},
            )
        ]

    def bad_inputs(self) -> list[Batch]:
        return [{"preds": torch.rand(1, 2, 2), "target": torch.rand(1, 2, 2)}]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: PSNR(data_range=-1.0)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return mean_squared_errors, [torch.rand(1, 1, 300, 700), torch.rand(1, 1, 300, 700)]


def _detached(value: torch.Tensor) -> torch.Tensor:
    return value.detach().cpu()


# ---------------------------------------------------------------------------- golden values


def images_of(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(case.inputs["pred"]), torch.tensor(case.inputs["target"])


@every_case
def test_every_image(case: Case) -> None:
    pred, target = images_of(case)
    values = psnr(pred, target, **case.params)
    assert values.dtype is torch.float32
    case.check(values, case.expected["recommended_default"])
    case.check(values, case.expected["references"]["skimage per image"])
    capped = psnr(pred, target, **case.params, max_db=120.0)
    ours = [min(value, 120.0) for value in case.expected["torch_world"]]
    case.check(capped, ours)


@every_case
@pytest.mark.parametrize("route", ROUTES)
def test_streams(case: Case, route: str) -> None:
    pred, target = images_of(case)
    batches = [(pred[:1], target[:1]), (pred[1:], target[1:])]
    result = feed(lambda: PSNR(**case.params), batches, route).compute()
    case.check(result["psnr"], case.expected["references"]["mean of per-image"])
    pooled = feed(lambda: PSNR(**case.params, reduction="pooled"), batches, route).compute()
    case.check(pooled["psnr"], case.expected["references"]["torchmetrics pooled (dim=None)"])
    assert next(iter(result)) == next(iter(pooled)) == "psnr"


# ---------------------------------------------------------------------------- other tools


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8])
def test_agrees_with_other_tools(dtype: torch.dtype) -> None:
    images = (torch.rand(2, 4, 3, 21, 33, dtype=torch.float64) * 255).to(dtype)
    pred, target = images
    values = psnr(pred, target, 255.0)
    each = [
        peak_signal_noise_ratio(b.numpy(), a.numpy(), data_range=255)  # type: ignore[no-untyped-call]
        for a, b in zip(pred, target, strict=True)
    ]
    np.testing.assert_allclose(values.double().numpy(), each, rtol=0, atol=1e-5)
    metric = PSNR(data_range=255.0, reduction="pooled")
    metric.update(pred, target)
    theirs = PeakSignalNoiseRatio(data_range=255.0)
    theirs.update(pred.double(), target.double())
    assert float(metric.compute()["psnr"]) == pytest.approx(float(theirs.compute()), abs=1e-5)


def test_mean_of_psnr_is_not_psnr_of_the_mean() -> None:
    """Mean squared errors of 0.5 and 0.1: 6.505 dB per image, 5.229 dB pooled."""
    pred = torch.tensor([0.5, 0.1], dtype=torch.float64).sqrt().view(2, 1, 1, 1)
    for reduction, expected in (("mean", 6.505), ("pooled", 5.229)):
        for split in (1, 2):
            metric = PSNR(data_range=1.0, reduction=reduction)
            for part in torch.split(pred, split):
                metric.update(part, torch.zeros_like(part))
            assert float(metric.compute()["psnr"]) == pytest.approx(expected, abs=1e-3)


def test_bytes_are_not_subtracted_as_bytes() -> None:
    dark, bright = torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.full((1, 1, 2, 2), 255.0)
    for pair in ((dark, bright.byte()), (bright.byte(), dark)):
        assert float(psnr(*pair, 255.0)) == pytest.approx(0.0, abs=1e-6)


def test_perfect_images_are_counted() -> None:
    target = torch.zeros(3, 1, 2, 2)
    pred = torch.tensor([0.0, 0.1, 0.01]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    metric = PSNR(data_range=1.0)
    metric.update(pred, target)
    result = metric.compute()
    assert result["psnr"] == torch.inf
    assert float(result["finite"]) == pytest.approx(30.0, abs=1e-5)
    assert (int(result["n_perfect"]), int(result["n"])) == (1, 3)
    capped = PSNR(data_range=1.0, max_db=60)
    capped.update(pred, target)
    assert float(capped.compute()["psnr"]) == pytest.approx(40.0, abs=1e-5)


def test_a_diverged_image_shows_unless_masked() -> None:
    pred = torch.tensor([0.0, 0.1, torch.nan]).view(3, 1, 1, 1)
    metric = PSNR(data_range=1.0)
    metric.update(pred, torch.zeros(3, 1, 1, 1))
    assert metric.compute()["psnr"].isnan()
    metric.reset()
    metric.update(pred, torch.zeros(3, 1, 1, 1), mask=torch.tensor([False, True, False]))
    assert float(metric.compute()["psnr"]) == pytest.approx(20.0, abs=1e-5)


def test_large_images_are_worked_on_in_pieces() -> None:
    pred, target = torch.rand(2, 2, 3, 301, 257)
    assert pred.numel() > 3 * CHUNK
    expected = ((pred.double() - target.double()) ** 2).mean((1, 2, 3))
    torch.testing.assert_close(mean_squared_errors(pred, target), expected, rtol=1e-7, atol=0)


def test_is_differentiable() -> None:
    pred = torch.rand(2, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(psnr, (pred, torch.zeros(2, 1, 3, 3, dtype=torch.float64)))


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-70, 2.0**70, 2.0**110])
def test_images_of_any_range(scale: float) -> None:
    """Squares of such float32 differences leave their range."""
    pred, target = torch.rand(2, 3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    plain, scaled = PSNR(data_range=1.0), PSNR(data_range=scale)
    plain.update(pred, target)
    scaled.update(scale * pred, scale * target)
    expected = float(plain.compute()["psnr"])
    assert float(scaled.compute()["psnr"]) == pytest.approx(expected, rel=1e-6)
    values = psnr(scale * pred, scale * target, scale)
    assert values.dtype is torch.float32
    torch.testing.assert_close(values, psnr(pred, target))
