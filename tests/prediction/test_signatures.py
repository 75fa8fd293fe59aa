"""The functions take the place of torch_world's without another change."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from dynmetrics import prediction

THEIRS: dict[str, dict[str, Any]] = {
    "rollout_error": {"pred": None, "target": None, "p": 1},
    "ssim": {"pred": None, "target": None, "data_range": 1.0, "window": 11, "sigma": 1.5},
    "psnr": {"pred": None, "target": None, "data_range": 1.0},
    "chamfer_distance": {"x": None, "y": None},
    "r2_score": {"pred": None, "target": None},
}


@pytest.mark.parametrize("name", THEIRS)
def test_names_order_and_defaults(name: str) -> None:
    parameters = inspect.signature(getattr(prediction, name)).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    ours = {p.name: None if p.default is p.empty else p.default for p in positional}
    assert list(ours.items()) == list(THEIRS[name].items())


def test_types_and_shapes() -> None:
    images, latents, points = torch.rand(2, 4, 3, 12, 12), torch.rand(2, 5, 6), torch.rand(2, 7, 3)
    for result, shape in (
        (prediction.psnr(images, images / 2), (2, 4)),
        (prediction.psnr(images[0, 0], images[0, 1]), ()),
        (prediction.ssim(images, images / 2), (2, 4)),
        (prediction.ssim(images[0, 0], images[0, 1]), ()),
        (prediction.rollout_error(latents, latents / 2), (5,)),
        (prediction.chamfer_distance(points, points[:, :4]), (2,)),
    ):
        assert (result.dtype, tuple(result.shape)) == (torch.float32, shape)
    assert isinstance(prediction.r2_score(latents[0], latents[1]), float)
