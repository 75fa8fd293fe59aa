"""Interrupted jobs go on to the values of uninterrupted ones; damaged checkpoints are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from dynmetrics import MetricSuite
from tests.contract import assert_same
from tests.core.resume_job import BATCHES, batch, suite
from tests.core.toys import Mean
from tests.ranks import run_ranks


def job(folder: Path, rank: int = 0, die_at: int = -1) -> int:
    """The loop in a process of its own; its exit code."""
    command = [sys.executable, "-m", "tests.core.resume_job", str(folder), str(rank), str(die_at)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def uninterrupted(ranks: int = 1) -> MetricSuite:
    metrics = suite()
    for rank in range(ranks):
        for i in range(BATCHES):
            metrics.update(**batch(i, rank))
    return metrics


# ---------------------------------------------------------------- killed and resumed


def test_killed_twice_and_resumed(tmp_path: Path) -> None:
    assert job(tmp_path, die_at=0) == -signal.SIGKILL
    assert not (tmp_path / "0.pt").exists()
    assert job(tmp_path, die_at=3) == -signal.SIGKILL
    assert torch.load(tmp_path / "0.pt", weights_only=True)["batches"] == 3
    assert job(tmp_path) == 0
    result = torch.load(tmp_path / "0.result", weights_only=True)
    assert_same(result, uninterrupted().compute(), 0.0)


def _resumed(rank: int, folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], int]:
    """Goes on from a file for each rank, then from one file that rank 0 alone takes over."""
    metrics = suite()
    for i in range(BATCHES):
        if i == 2:
            torch.save(metrics.state_dict(), folder / f"{rank}.pt")
            metrics = suite()
            metrics.load_state_dict(torch.load(folder / f"{rank}.pt", weights_only=True))
        metrics.update(**batch(i, rank))
    each = metrics.compute()
    metrics = suite()
    for i in range(BATCHES):
        if i == 2:
            with metrics.synchronised():
                everything = metrics.state_dict()
            metrics = suite()
            if rank == 0:
                metrics.load_state_dict(everything)
        metrics.update(**batch(i, rank))
    return each, metrics.compute(), metrics["mean"].update_count


def test_two_ranks_resume_from_two_files_or_from_one(tmp_path: Path) -> None:
    expected = uninterrupted(ranks=2).compute()
    results = run_ranks(_resumed, 2, tmp_path)
    for each, joint, _ in results:
        assert_same(each, expected, 1e-12)
        assert_same(joint, expected, 1e-12)
    # Rank 0 took over the 2 updates of either rank, then both had 3 more.
    assert [updates for _, _, updates in results] == [2 + 2 + 3, 3]


def test_a_resumed_suite_knows_how_much_it_has_seen() -> None:
    """torchmetrics restores no count, and warns that there was no update."""
    metrics, other = uninterrupted(), suite()
    other.load_state_dict(metrics.state_dict())
    assert [metric.update_count for _, metric in other.items()] == [BATCHES] * len(other)
    assert_same(other.compute(), metrics.compute(), 0.0)


# ---------------------------------------------------------------- damaged and foreign files


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7, 0.99])
def test_a_truncated_file_changes_nothing(tmp_path: Path, kept: float) -> None:
    metrics, saved = uninterrupted(), tmp_path / "suite.pt"
    expected = metrics.compute()
    torch.save(metrics.state_dict(), saved)
    content = saved.read_bytes()
    saved.write_bytes(content[: int(kept * len(content))])
    # Which of these it is depends on where the file ends.
    with pytest.raises((RuntimeError, EOFError, OSError)):
        metrics.load_state_dict(torch.load(saved, weights_only=True))
    assert_same(metrics.compute(), expected, 0.0)


KEY = "metrics.mean."


def _other_configuration(saved: dict[str, Any]) -> None:
    other = MetricSuite({"mean": Mean(scale=2.0)})
    saved[KEY + "identity"] = other.state_dict()[KEY + "identity"]


DAMAGE: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "state of a newer version": (
        lambda s: s.update({KEY + "squares": torch.zeros(())}), "Unexpected.*mean.squares"
    ),
    "metric of a newer version": (
        lambda s: s.update({"metrics.new.n": torch.zeros(())}), "Unexpected.*metrics.new.n"
    ),
    "state of an older version": (lambda s: s.pop(KEY + "total"), "Missing.*mean.total"),
    "no count": (lambda s: s.pop(KEY + "update_count"), "Missing.*mean.update_count"),
    "no identity": (lambda s: s.pop(KEY + "identity"), "Missing.*mean.identity"),
    "other configuration": (_other_configuration, r"expected Mean\(\).*another configuration"),
    "other type": (
        lambda s: s.update({KEY + "n": s[KEY + "n"].float()}), "n: expected .*int64.*float32"
    ),
    "other shape": (
        lambda s: s.update({KEY + "n": torch.zeros(2, dtype=torch.int64)}), r"n of shape \(\)"
    ),
    "no tensor": (lambda s: s.update({KEY + "total": 3.0}), "expected a tensor"),
    "a list of counts": (
        lambda s: s.update({KEY + "update_count": torch.tensor([1, 2])}), "metrics.mean"
    ),
    "last member": (lambda s: s.pop("metrics.rows.features"), "Missing.*rows.features"),
    "everything": (lambda s: s.clear(), "Missing.*accuracy.identity"),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_checkpoint_changes_nothing(
    damage: Callable[[dict[str, Any]], Any], message: str
) -> None:
    saved = uninterrupted().state_dict()
    damage(saved)
    metrics = suite()
    metrics.update(**batch(1))
    expected = metrics.compute()
    with pytest.raises(RuntimeError, match=f"(?s){message}"):
        metrics.load_state_dict(saved)
    assert_same(metrics.compute(), expected, 0.0)
    assert [metric.update_count for _, metric in metrics.items()] == [1] * len(metrics)


def test_a_checkpoint_is_copied_both_ways() -> None:
    metrics = uninterrupted()
    expected, saved = metrics.compute(), metrics.state_dict()
    names = list(saved)
    other = suite()
    other.load_state_dict(saved)
    assert list(saved) == names
    for i in range(BATCHES):
        other.update(**batch(i, rank=1))
    again, unread = suite(), suite()
    for loaded in (again, unread):
        loaded.load_state_dict(saved)
    assert_same(again.compute(), expected, 0.0)
    for value in saved.values():
        for tensor in value if isinstance(value, list) else [value]:
            tensor.zero_()
    assert_same(metrics.compute(), expected, 0.0)
    assert_same(unread.compute(), expected, 0.0)


def test_without_strictness_absent_states_stay_and_foreign_ones_are_refused() -> None:
    metrics = suite()
    metrics.update(**batch(1))
    expected = metrics.compute()
    assert metrics.load_state_dict({}, strict=False).missing_keys
    assert_same(metrics.compute(), expected, 0.0)
    foreign = MetricSuite({"mean": Mean(scale=2.0)}).state_dict()
    with pytest.raises(RuntimeError, match="another configuration"):
        metrics.load_state_dict(foreign, strict=False)
    assert_same(metrics.compute(), expected, 0.0)


def test_a_model_saved_before_it_had_metrics_loads_without_strictness() -> None:
    old = nn.Module()
    old.layer = nn.Linear(1, 1)
    new = nn.Module()
    new.layer, new.mean = nn.Linear(1, 1), Mean()
    with pytest.raises(RuntimeError, match=r"Missing.*mean\.identity"):
        new.load_state_dict(old.state_dict())
    new.load_state_dict(old.state_dict(), strict=False)
    new.mean.persistent(False)
    assert not [name for name in new.state_dict() if name.startswith("mean")]
    new.load_state_dict(old.state_dict())


class TheirMean(Metric):
    """What plain torchmetrics takes from a checkpoint without a word."""

    full_state_update = False
    n: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("n", torch.zeros(()), "sum", persistent=True)

    def update(self, value: Tensor) -> None:
        self.n += value.numel()

    def compute(self) -> Tensor:
        return self.n


def test_what_plain_torchmetrics_loads() -> None:
    theirs, saved = TheirMean(), {"n": torch.ones(2, 3)}
    theirs.load_state_dict({})
    theirs.load_state_dict(saved)
    assert (theirs.update_count, theirs.n.shape) == (0, (2, 3))
    theirs.update(torch.ones(1))
    assert float(saved["n"].sum()) == 12.0
