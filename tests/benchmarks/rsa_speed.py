"""RDMs, rank correlations and scores against rsatoolbox and SciPy, in time and memory."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from scipy import stats
from torch import Tensor

from dynmetrics.rsa import RDM, RSA, TemporalRDM, rdm, spearman
from dynmetrics.rsa.vectors import square, upper_triangle
from tests.benchmarks.measuring import Row, compare

NAN = float("nan")
FEATURES = 4096


def run() -> list[Row]:
    """All of it."""
    return [*matrices(), *over_time(), *streams(), *correlations(), *brains(), *memory()]


def matrices() -> list[Row]:
    """Correlation RDMs of float32 activations."""
    rows = []
    for conditions, rounds in ((92, 31), (1000, 7)):
        patterns = random(conditions, FEATURES).float()
        doubles = patterns.double()
        name, ours = f"rdm {(conditions, FEATURES)}", partial(rdm, patterns)
        gemm = partial(gemm_after_a_pass, doubles)
        rows.append(compare(name, "float64 GEMM and a pass", ours, gemm, goal=">= 0.77"))
        for dtype, peer in ((doubles, "rsatoolbox"), (patterns, "rsatoolbox, float32")):
            theirs = rsatoolbox_rdm(dtype)
            rows.append(against(name, peer, ours, theirs, rounds=rounds, goal=">= 20"))
    return rows


def over_time() -> list[Row]:
    """An RDM for each of 50 timesteps, from the state."""
    patterns = random(92, 50, 512).float()
    metric = TemporalRDM(conditions=92, compute_with_cache=False)
    metric.update(patterns, torch.arange(92))
    name = "TemporalRDM.compute (92, 50, 512)"
    theirs = rsatoolbox_movie(patterns.double())
    return [against(name, "rsatoolbox movie", metric.compute, theirs, rounds=5, goal=">= 12")]


def streams() -> list[Row]:
    """One update: what it costs beside the copy of the state that makes it safe to undo."""
    metric, batch = RDM(conditions=1000), random(64, FEATURES).float()
    condition = torch.arange(64)
    metric.update(batch, condition)
    name = f"RDM.update (64, {FEATURES}) of 1000"
    state = metric.metric_state["sums"]
    assert isinstance(state, Tensor)
    return [compare(name, "copy of the state", partial(metric.update, batch, condition),
                    state.clone, goal=">= 0.5")]  # fmt: skip


def correlations() -> list[Row]:
    """Spearman of two RDM vectors, without and with ties."""
    rows = []
    for pairs in (3003, 499_500):
        a, b = random(2, pairs)
        for kind, x in (("no ties", a), ("ties", (a * 20).round())):
            ours, theirs = partial(spearman, x, b), partial(stats.spearmanr, x.numpy(), b.numpy())
            rows.append(compare(f"spearman of {pairs} pairs, {kind}", "scipy", ours, theirs))
    return rows


def brains() -> list[Row]:
    """One model against 15 subjects: the RDM of the model is there, nothing else about it."""
    rows = []
    for conditions, rounds in ((92, 31), (1000, 7)):
        model, *subjects = square(random(16, conditions * (conditions - 1) // 2))
        target = RSA(torch.stack(subjects)).targets["brain"]
        ours = partial(target.compare, model.unsqueeze(0), leave_out=False)
        theirs = rsatoolbox_compare(model, torch.stack(subjects))
        name = f"RSA: a model and 15 subjects of {conditions}"
        rows.append(against(name, "rsatoolbox", ours, theirs, rounds=rounds, goal=">= 8"))
    return rows


def memory() -> list[Row]:
    """Memory of a stream of three layers and of its score, in a fresh process."""
    conditions, features, layers = 300, 50_000, 3
    stated = 8 * conditions * features * layers / 2**20
    rows = []
    for projection in (None, 2048):
        values = measured(conditions, features, layers, projection).split()
        stream = f"LayerRSA {layers} x ({conditions}, {features}), projection={projection}"
        for what, text in zip(("held", "peak of updates", "peak of compute"), values, strict=True):
            ratio = stated / max(float(text), 1e-3)
            name = f"{stream}: {what} in MB, not ms"
            rows.append(Row(name, "8 K D L bytes", float(text), stated, ratio, ratio, ratio))
    return rows


def measured(conditions: int, features: int, layers: int, projection: int | None) -> str:
    """Megabytes above the start: after the updates, at the worst of them, and at `compute`."""
    code = f"""
import re, torch
from pathlib import Path
from dynmetrics.rsa import LayerRSA
torch.set_num_threads(1)
def peak():
    # Not `getrusage`, whose peak begins with that of the parent process.
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
def fed(k, d):
    brain = torch.rand(2, k, k)
    brain = brain + brain.mT
    names = [str(i) for i in range({layers})]
    metric = LayerRSA(layers=names, targets={{"a": brain}}, recipe="none", projection={projection})
    for start in range(0, k, 4):
        rows = torch.arange(start, min(start + 4, k))
        metric.update({{n: torch.rand(len(rows), d) for n in names}}, rows)
    return metric
fed(20, 300).compute()
torch.rand(4, {features})
before = peak()
metric = fed({conditions}, {features})
updated = peak()
Path("/proc/self/clear_refs").write_text("5")
held = peak()
metric.compute()
print(held - before, updated - before, peak() - before)
"""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout


# ---------------------------------------------------------------------------- peers


def random(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def gemm_after_a_pass(patterns: Tensor) -> Tensor:
    """What no RDM in float64 can do without: each number once, and the inner products."""
    moved = patterns - 0.5
    return moved @ moved.mT


def rsatoolbox_rdm(patterns: Tensor) -> Callable[[], Any] | None:
    if importlib.util.find_spec("rsatoolbox") is None:
        return None
    from rsatoolbox.data import Dataset
    from rsatoolbox.rdm import calc_rdm

    return partial(calc_rdm, Dataset(patterns.numpy()), method="correlation")


def rsatoolbox_movie(patterns: Tensor) -> Callable[[], Any] | None:
    if importlib.util.find_spec("rsatoolbox") is None:
        return None
    from rsatoolbox.data import TemporalDataset
    from rsatoolbox.rdm import calc_rdm_movie

    dataset = TemporalDataset(
        patterns.transpose(1, 2).numpy(),
        obs_descriptors={"image": list(range(len(patterns)))},
        time_descriptors={"time": list(range(patterns.shape[1]))},
    )
    return partial(calc_rdm_movie, dataset, method="correlation", descriptor="image")


def rsatoolbox_compare(model: Tensor, subjects: Tensor) -> Callable[[], Any] | None:
    if importlib.util.find_spec("rsatoolbox") is None:
        return None
    from rsatoolbox.rdm import RDMs
    from rsatoolbox.rdm import compare as compare_theirs

    ours = RDMs(upper_triangle(model.unsqueeze(0)).numpy())
    brain = RDMs(upper_triangle(subjects).numpy())
    return partial(compare_theirs, ours, brain, method="spearman")


def against(
    name: str, peer: str, ours: Callable[[], Any], theirs: Callable[[], Any] | None, **options: Any
) -> Row:
    """`compare`, or a row that says that the peer is not there."""
    if theirs is None:
        goal = options.get("goal", "")
        return Row(name, f"{peer}: not installed", NAN, NAN, NAN, NAN, NAN, goal)
    return compare(name, peer, ours, theirs, **options)
