"""SSIM under all laws, against the golden values, and where others go wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from skimage.metrics import structural_similarity
from torch import Tensor
from torchmetrics.functional.image import structural_similarity_index_measure

from dynmetrics.core import StreamingMetric
from dynmetrics.prediction import SSIM, ssim
from dynmetrics.prediction.structural_similarity import CHUNK, similarity, window_of
from tests.contract import Batch, MetricContract
from tests.golden_cases import ROUTES, Case, feed, world_cases
from tests.reference import prediction as definition

CASES = world_cases("ssim")
VALID = [case for case in CASES if case.name != "image smaller than window 8x8"]
every_case = pytest.mark.parametrize("case", VALID, ids=str)


class TestMean(MetricContract):
    options: ClassVar[dict[str, Any]] = {
        "window": 3,
        "kernel": "uniform",
        "sample_covariance": True,
        "k1": 0.02,
    }

    def make(self) -> StreamingMetric:
        return SSIM(data_range=1.0, **self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        """Images of several sizes, some of which do not count."""
        rng = np.random.default_rng(seed)
        return [
            {
                "preds": torch.tensor(rng.random((n, *size))),
                "target": torch.tensor(rng.random((n, *size))),
                "mask": torch.tensor(rng.random(n) < 0.8),
            }
            for n, size in ((3, (1, 4, 5)), (1, (3, 5, 3)), (0, (1, 3, 3)), (4, (2, 3, 4)))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        values = [
            definition.ssim(pred.numpy(), target.numpy(), **self.options)
            for batch in batches
            for pred, target, counts in zip(*map(Tensor.detach, batch.values()), strict=True)
            if counts
        ]
        return definition.mean_of(values)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        image = torch.ones(1, 1, 11, 11)
        first = {"preds": image, "target": image}
        small = {"preds": image[..., :3, :3], "target": image[..., :3, :3]}
        others: list[tuple[dict[str, Any], Batch]] = [
            ({"sigma": 2.0}, small),
            ({"border": "zero"}, first),
            ({"k1": 0.1}, first),
        ]
        return [
            (SSIM(data_range=1.0, window=3), SSIM(data_range=1.0, window=3, **options), batch)
            for options, batch in others
        ]

    def bad_inputs(self) -> list[Batch]:
        image = torch.rand(2, 1, 4, 4)
        return [
            {"preds": image, "target": image[:1]},
            {"preds": image[0, 0], "target": image[0, 0]},
            {"preds": image[..., :2], "target": image[..., :2]},
            {"preds": image.numpy(), "target": image},
            {"preds": image, "target": image, "mask": torch.tensor([True])},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [
            lambda: SSIM(data_range=0),
            lambda: SSIM(data_range=None),  # type: ignore[arg-type]
            lambda: SSIM(data_range=1, window=10),
            lambda: SSIM(data_range=1, window=11.0),  # type: ignore[arg-type]
            lambda: SSIM(data_range=1, window=1, sample_covariance=True),
            lambda: SSIM(data_range=1, sigma=0),
            lambda: SSIM(data_range=1, border="same"),
            lambda: SSIM(data_range=1, kernel="box"),
            lambda: SSIM(data_range=1, k1=0),
            lambda: SSIM(data_range=1, by_step=None),  # type: ignore[arg-type]
        ]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return similarity, [*torch.rand(2, 3, 2, 12, 13), window_of(1.0, 11, 1.5)]


class TestSteps(MetricContract):
    def make(self) -> StreamingMetric:
        return SSIM(data_range=1.0, window=5, border="reflect", by_step=True)

    def batches(self, seed: int = 0) -> list[Batch]:
        """Videos (B, T, C, H, W); T differs between batches."""
        rng = np.random.default_rng(seed)
        return [
            {
                "preds": torch.tensor(rng.random((b, t, 1, 4, 3))),
                "target": torch.tensor(rng.random((b, t, 1, 4, 3))),
            }
            for b, t in ((2, 3), (1, 1), (0, 2), (3, 4))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        curve = []
        for t in range(max(batch["preds"].shape[1] for batch in batches)):
            values = [
                definition.ssim(pred[t], target[t], window=5, border="reflect")
                for batch in batches
                for pred, target in zip(*map(Tensor.detach, batch.values()), strict=True)
                if t < len(pred)
            ]
            curve.append(definition.mean_of(values))
        return np.array(curve)

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        video = torch.rand(1, 1, 1, 4, 4)
        one, other = (SSIM(data_range=1.0, window=3, by_step=by_step) for by_step in (False, True))
        return [(one, other, {"preds": video, "target": video})]

    def bad_inputs(self) -> list[Batch]:
        return [
            {"preds": torch.rand(1, 5, 5), "target": torch.rand(1, 5, 5)},
            {"preds": torch.rand(1, 1, 1, 2, 5), "target": torch.rand(1, 1, 1, 2, 5)},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        return [lambda: SSIM(data_range=-1.0)]

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        return similarity, [*torch.rand(2, 3, 1, 4, 5), window_of(1.0, 5, 1.5, "zero")]


@pytest.mark.parametrize("border", ["valid", "reflect", "zero"])
@pytest.mark.parametrize("kernel", ["gaussian", "uniform"])
@pytest.mark.parametrize("sample_covariance", [True, False])
def test_every_option_against_the_definition(
    border: str, kernel: str, sample_covariance: bool
) -> None:
    options: dict[str, Any] = {
        "window": 5,
        "sigma": 0.8,
        "border": border,
        "kernel": kernel,
        "sample_covariance": sample_covariance,
        "k2": 0.05,
    }
    pred, target = torch.rand(2, 2, 8, 7, dtype=torch.float64) * 3
    expected = definition.ssim(pred, target, data_range=3.0, **options)
    assert float(ssim(pred, target, 3.0, **options)) == pytest.approx(expected, abs=1e-12)


# ---------------------------------------------------------------------------- golden values


def images_of(case: Case) -> tuple[Tensor, Tensor]:
    return torch.tensor(case.inputs["pred"]), torch.tensor(case.inputs["target"])


def references_of(case: Case, start: str) -> Any:
    """The golden values of the tool whose name begins so, if there are any."""
    found = [v for name, v in case.expected["references"].items() if name.startswith(start)]
    return found[0] if found else None


@every_case
def test_every_image(case: Case) -> None:
    pred, target = images_of(case)
    values = ssim(pred, target, **case.params)
    assert values.dtype is torch.float32
    case.check(values, case.expected["recommended_default"])
    assert bool((values <= 1).all())


@every_case
@pytest.mark.parametrize("route", ROUTES)
def test_streams(case: Case, route: str) -> None:
    pred, target = images_of(case)
    batches = [(pred[:1], target[:1]), (pred[1:], target[1:])]
    expected = np.mean(case.expected["recommended_default"])
    case.check(feed(lambda: SSIM(**case.params), batches, route).compute(), expected)


VARIANTS: dict[str, dict[str, Any]] = {
    "skimage gaussian_weights sigma 1.5": {},
    "skimage gaussian_weights, sample": {"sample_covariance": True},
    "skimage default": {"kernel": "uniform", "window": 7, "sample_covariance": True},
    "zero-padded": {"border": "zero"},
    "torchmetrics 1.9": {"border": "reflect"},
}


@every_case
@pytest.mark.parametrize("tool", VARIANTS)
def test_other_tools_by_their_options(case: Case, tool: str) -> None:
    expected = references_of(case, tool)
    options = {**case.params, **VARIANTS[tool]}
    if tool == "torchmetrics 1.9":
        # Its Gaussian window follows from sigma, whatever size is asked for.
        options["window"] = 11
    if expected is None:
        pytest.skip("no value of this tool")
    pred, target = images_of(case)
    case.check(ssim(pred.double(), target.double(), **options), expected)


def test_images_smaller_than_the_window_are_refused() -> None:
    case = next(case for case in CASES if case.name == "image smaller than window 8x8")
    assert case.expected["recommended_default"] == {"raises": "ValueError"}
    pred, target = images_of(case)
    metric = SSIM(**case.params)
    for call in (lambda: ssim(pred, target), lambda: metric.update(pred, target)):
        with pytest.raises(ValueError, match="preds: expected sides of at least 11"):
            call()


# ---------------------------------------------------------------------------- other tools


@pytest.mark.parametrize("offset", [0.0, 1e3])
def test_equals_scikit_image(offset: float) -> None:
    rng = np.random.default_rng(0)
    target = rng.random((2, 3, 40, 33)) + offset
    pred = target + 0.1 * rng.normal(size=target.shape)
    theirs = [
        structural_similarity(  # type: ignore[no-untyped-call]
            a,
            b,
            data_range=1.0,
            channel_axis=0,
            gaussian_weights=True,
            use_sample_covariance=False,
        )
        for a, b in zip(pred, target, strict=True)
    ]
    ours = ssim(torch.tensor(pred), torch.tensor(target))
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-6)
    if not offset:
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=0, atol=1e-12)


def test_what_happens_at_the_border_depends_on_the_padding() -> None:
    """Equal images but for a frame of one pixel: the tools that pad see it, the others less so."""
    target = torch.rand(1, 1, 64, 64, dtype=torch.float64)
    pred = target.clone()
    pred[..., 0, :] = pred[..., -1, :] = pred[..., :, 0] = pred[..., :, -1] = 0.5
    valid, padded = float(ssim(pred, target)), float(ssim(pred, target, border="reflect"))
    theirs = torch.as_tensor(structural_similarity_index_measure(pred, target, data_range=1.0))
    assert padded == pytest.approx(float(theirs), abs=1e-6)
    assert padded < valid - 0.01


def test_two_libraries_agree_once_their_options_do() -> None:
    rng = np.random.default_rng(1)
    pred, target = rng.random((2, 30, 30))
    default = structural_similarity(pred, target, data_range=1.0)  # type: ignore[no-untyped-call]
    ours = [
        float(ssim(torch.tensor(pred)[None], torch.tensor(target)[None], **options))
        for options in (VARIANTS["skimage default"], {})
    ]
    assert ours[0] == pytest.approx(float(default), abs=1e-12)
    assert abs(ours[0] - ours[1]) > 1e-3


def test_data_range_is_said_and_never_guessed() -> None:
    with pytest.raises(TypeError, match="data_range"):
        SSIM()  # type: ignore[call-arg]
    flat = torch.zeros(1, 1, 11, 11, dtype=torch.float64)
    # Constants a and b: (2ab + C1) / (a^2 + b^2 + C1), and C1 is the square of the range's 1 %.
    for data_range in (1.0, 2.0):
        c1 = (0.01 * data_range) ** 2
        expected = (2 * 0.2 * 0.4 + c1) / (0.2**2 + 0.4**2 + c1)
        value = float(ssim(flat + 0.2, flat + 0.4, data_range))
        assert value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("brightness", [0.6, 1.0, 100.0])
def test_nearly_equal_constants_never_exceed_one(brightness: float) -> None:
    flat = torch.full((1, 1, 11, 11), brightness)
    value = float(ssim(flat, flat * (1 + 2e-7)))
    assert value <= 1
    assert value == pytest.approx(1.0, abs=1e-5)


def test_equal_images_score_one_whatever_their_range() -> None:
    """Flat windows far from the mean have a rounding error for a variance, of either sign."""
    image = torch.zeros(1, 1, 40, 40)
    image[..., 20:] = 1000.1
    image[..., :5, :] += 33.3
    torch.testing.assert_close(ssim(image, image), torch.ones(1), rtol=0, atol=1e-6)


def test_bright_images_of_low_contrast_keep_their_digits() -> None:
    generator = torch.Generator().manual_seed(0)
    target = 0.9 + 0.01 * torch.rand(2, 1, 40, 40, generator=generator)
    pred = target + 0.003 * torch.randn(2, 1, 40, 40, generator=generator)
    exact = ssim(pred.double(), target.double())
    torch.testing.assert_close(ssim(pred, target).double(), exact, rtol=0, atol=2e-6)


def test_a_plane_does_not_depend_on_its_batch() -> None:
    """Small planes share a piece of work, and a diverged one keeps to itself."""
    pred, target = torch.rand(2, 40, 2, 16, 16)
    pred[3, 1, 5, 5] = torch.nan
    values = ssim(pred, target)
    assert values.isnan().nonzero().tolist() == [[3]]
    for i in (0, 4, 39):
        assert values[i] == ssim(pred[i], target[i])
    large = torch.rand(2, 2, 1, 400, 340)
    assert large[0, 0].numel() > CHUNK
    assert ssim(*large).shape == (2,)


def test_global_matmul_precision_changes_nothing() -> None:
    pred, target = torch.rand(2, 1, 3, 32, 32)
    before = torch.get_float32_matmul_precision()
    value = ssim(pred, target)
    torch.set_float32_matmul_precision("medium")
    try:
        assert torch.equal(ssim(pred, target), value)
    finally:
        torch.set_float32_matmul_precision(before)


def test_is_differentiable() -> None:
    pred, target = torch.rand(2, 1, 2, 5, 6, dtype=torch.float64)
    pred.requires_grad_()
    torch.autograd.gradcheck(lambda x: ssim(x, target, window=3), (pred,))


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-30, 2.0**31, 2.0**110])
def test_images_of_any_range(scale: float) -> None:
    """Fourth powers of such float32 pixels leave their range."""
    pred, target = torch.rand(2, 2, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    plain, scaled = SSIM(data_range=1.0), SSIM(data_range=scale)
    plain.update(pred, target)
    scaled.update(scale * pred, scale * target)
    assert float(scaled.compute()) == pytest.approx(float(plain.compute()), rel=1e-5)
    assert ssim(scale * pred, scale * target, scale).dtype is torch.float32
