"""PSNR, SSIM and Chamfer distance against the peers that are installed, in time and memory."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from scipy.spatial import cKDTree
from torch import Tensor
from torch.nn.functional import mse_loss
from torchmetrics.functional.image import (
    peak_signal_noise_ratio,
    structural_similarity_index_measure,
)

from dynmetrics.prediction import PSNR, SSIM, ChamferDistance, R2Score, RolloutError
from tests.benchmarks.measuring import Row, compare

IMAGES = (16, 3, 224, 224)
POINTS = 20_000
NAN = float("nan")


def run() -> list[Row]:
    """All of it."""
    return [*images(), *point_sets(), *trajectories(), *memory()]


def images() -> list[Row]:
    """One update of a batch of images."""
    generator = torch.Generator().manual_seed(0)
    pred, target = torch.rand(2, *IMAGES, generator=generator)
    rows = []
    name, ours = f"SSIM.update {IMAGES}", partial(SSIM(data_range=1.0).update, pred, target)
    for peer, function in {
        "torch_world": optional("torch_world.metrics", "ssim", pred, target),
        "torchmetrics": partial(structural_similarity_index_measure, pred, target, data_range=1.0),
        "pytorch_msssim": optional("pytorch_msssim", "ssim", pred, target, data_range=1.0),
    }.items():
        rows.append(against(name, peer, ours, function, rounds=9, goal=">= 4"))
    name, ours = f"PSNR.update {IMAGES}", partial(PSNR(data_range=1.0).update, pred, target)
    for peer, function, goal in (
        ("sum of both inputs", partial(sum_of_both, pred, target), ">= 0.67"),
        ("mse_loss of the batch", partial(mse_loss, pred, target), ">= 0.67"),
        ("torch_world", optional("torch_world.metrics", "psnr", pred, target), ""),
        (
            "torchmetrics",
            partial(
                peak_signal_noise_ratio,
                pred,
                target,
                data_range=1.0,
                dim=(1, 2, 3),
                reduction="none",
            ),
            "",
        ),
    ):
        rows.append(against(name, peer, ours, function, rounds=41, goal=goal))
    return rows


def point_sets() -> list[Row]:
    """One update of point sets: where trees are used, where they are not, and many small ones."""
    rows = []
    for shape, rounds, goal in (
        ((1, POINTS, 3), 3, ">= 100"),
        ((8, 2048, 3), 7, ""),
        ((8, 2048, 32), 7, ""),
        ((256, 64, 3), 21, ""),
    ):
        generator = torch.Generator().manual_seed(0)
        x, y = torch.rand(2, *shape, generator=generator)
        name, ours = f"ChamferDistance.update {shape}", partial(ChamferDistance().update, x, y)
        theirs = optional("torch_world.metrics", "chamfer_distance", x, y)
        rows.append(against(name, "torch_world", ours, theirs, rounds=rounds, goal=goal))
        if shape[2] == 3:
            rows.append(compare(name, "a loop of cKDTree", ours, partial(by_trees, x, y), rounds=7))
    return rows


def trajectories() -> list[Row]:
    """One update of latents, and of regression targets."""
    generator = torch.Generator().manual_seed(0)
    pred, target = torch.rand(2, 64, 20, 1024, generator=generator)
    theirs = optional("torch_world.metrics", "rollout_error", pred, target)
    ours = partial(RolloutError().update, pred, target)
    rows = [against(f"RolloutError.update {tuple(pred.shape)}", "torch_world", ours, theirs)]
    pred, target = pred.view(-1, 1024), target.view(-1, 1024)
    theirs = optional("torch_world.metrics", "r2_score", pred, target)
    ours = partial(R2Score().update, pred, target)
    return [*rows, against(f"R2Score.update {tuple(pred.shape)}", "torch_world", ours, theirs)]


def memory() -> list[Row]:
    """Peak memory that one call adds, in MB and in fresh processes."""
    name = f"ChamferDistance (1, {POINTS}, 3): extra memory in MB, not ms"
    module = "dynmetrics.prediction"
    ours = extra_megabytes(module)
    try:
        theirs = extra_megabytes("torch_world.metrics")
    except subprocess.CalledProcessError:
        return [Row(name, "torch_world: not installed", ours, NAN, NAN, NAN, NAN, "< 100 MB")]
    ratio = theirs / max(ours, 1e-3)
    return [Row(name, "torch_world", ours, theirs, ratio, ratio, ratio, "< 100 MB")]


def extra_megabytes(module: str) -> float:
    """What `chamfer_distance` of a module adds to the peak memory of a fresh process."""
    code = f"""
import re, torch
from pathlib import Path
from {module} import chamfer_distance
torch.set_num_threads(1)
chamfer_distance(torch.rand(1, 600, 3), torch.rand(1, 600, 3))
x, y = torch.rand(2, 1, {POINTS}, 3)
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
Path("/proc/self/clear_refs").write_text("5")
before = peak()
chamfer_distance(x, y)
print(peak() - before)
"""
    command = [sys.executable, "-c", code]
    output = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return float(output) / 1024


def optional(module: str, name: str, *args: Any, **kwargs: Any) -> Callable[[], Any] | None:
    """A call of a peer's function; None if the peer is not installed."""
    try:
        return partial(getattr(importlib.import_module(module), name), *args, **kwargs)
    except ImportError:
        return None


def against(
    name: str, peer: str, ours: Callable[[], Any], theirs: Callable[[], Any] | None, **options: Any
) -> Row:
    """`compare`, or a row that says that the peer is not there."""
    if theirs is None:
        goal = options.get("goal", "")
        return Row(name, f"{peer}: not installed", NAN, NAN, NAN, NAN, NAN, goal)
    return compare(name, peer, ours, theirs, **options)


def sum_of_both(pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The cheapest pass over both inputs."""
    return pred.sum(), target.sum()


def by_trees(x: Tensor, y: Tensor) -> list[float]:
    """The usual loop over items."""
    values = []
    for a, b in zip(x.numpy(), y.numpy(), strict=True):
        there, back = cKDTree(b).query(a)[0], cKDTree(a).query(b)[0]
        values.append((there**2).mean() + (back**2).mean())
    return values
