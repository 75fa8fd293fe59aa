"""Every metric in processes that die, lag, disagree, or go on from another number of files."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.contract import Batch, MetricContract, assert_equal_states, assert_same, fed, quietly
from tests.fuzz.families import CONTRACTS, law_of, name_of
from tests.ranks import World, error_of, run_ranks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

Task = tuple[Any, list[Batch]]


def _task(contract: type[MetricContract]) -> Task:
    law = contract()
    return law.make(), law.batches()


TASKS: list[type[MetricContract]] = list(
    {type(contract().make()): contract for contract in reversed(CONTRACTS)}.values()
)
"""One contract for every class."""


# ---------------------------------------------------------------------------- lost and slow ranks


def _rank_1_dies(rank: int, metric: Any, batches: list[Batch]) -> tuple[str, float]:
    fed(metric, batches)
    before = {name: getattr(metric, name) for name in metric.state_specs}
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    start, problem = time.monotonic(), "none"
    try:
        quietly(metric.compute)
    except (RuntimeError, ValueError) as error:
        problem = type(error).__name__
    assert_equal_states({name: getattr(metric, name) for name in before}, before)
    metric.sync_on_compute = metric._to_sync = False
    quietly(metric.compute)
    return problem, time.monotonic() - start


def test_a_rank_that_is_killed_is_an_error_on_the_others() -> None:
    world = World(2)
    try:
        survivor, victim = world.run(_rank_1_dies, _task(TASKS[0]), patience=60)
    finally:
        world.end()
    assert victim is not None
    assert not victim[0]
    assert survivor is not None
    assert survivor[0], survivor[1]
    problem, seconds = survivor[1]
    assert problem != "none"
    assert seconds < 45


def _rank_1_is_late(rank: int, tasks: list[Task]) -> list[Any]:
    results = []
    for i, (metric, batches) in enumerate(tasks):
        fed(metric, batches[rank::2])
        if rank and i % 10 == 0:
            time.sleep(0.3)
        results.append(quietly(metric.compute))
    return results


def test_a_late_rank_is_waited_for() -> None:
    first, second = run_ranks(_rank_1_is_late, 2, [_task(contract) for contract in TASKS])
    for contract, one, other in zip(TASKS, first, second, strict=True):
        law = law_of(contract)
        assert_same(one, law.reference(law.batches()), law.atol)
        assert_same(other, one, 0.0)


# ---------------------------------------------------------------------------- configurations


def _configured_differently(rank: int, pairs: list[Any]) -> list[tuple[str, bool]]:
    found = []
    for one, other, first in pairs:
        metric = fed((other if rank else one), [first])
        before = {name: getattr(metric, name) for name in metric.state_specs}
        text = error_of(metric.compute)
        assert_equal_states({name: getattr(metric, name) for name in before}, before)
        found.append((text, metric._is_synced))
    return found


def test_ranks_of_every_metric_agree_on_their_options() -> None:
    pairs = []
    for contract in CONTRACTS:
        with contextlib.suppress(NotImplementedError):
            pairs += contract().rivals()
    mine, theirs = run_ranks(_configured_differently, 2, pairs)
    assert mine == theirs
    for (text, synced), (one, other, _) in zip(mine, pairs, strict=True):
        assert not synced
        assert one.configuration in text or other.configuration in text, text


# ---------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("contract", CONTRACTS, ids=name_of)
def test_files_of_three_jobs_go_on_in_two(contract: type[MetricContract], tmp_path: Path) -> None:
    law = law_of(contract)
    batches = law.batches()
    third = -(-len(batches) // 3)
    parts = [fed(law.make(), batches[i * third : (i + 1) * third]) for i in range(3)]
    for i, part in enumerate(parts):
        torch.save(part.state_dict(), tmp_path / f"{i}.pt")
    jobs = [law.make(), law.make()]
    jobs[0].load_state_dict(torch.load(tmp_path / "0.pt", weights_only=True))
    for i in (1, 2):
        jobs[1].merge_state(torch.load(tmp_path / f"{i}.pt", weights_only=True))
    jobs[0].merge_state(jobs[1])
    assert_same(quietly(jobs[0].compute), law.reference(batches), law.atol)


@pytest.mark.parametrize("contract", CONTRACTS, ids=name_of)
def test_a_file_cut_short_changes_nothing(contract: type[MetricContract], tmp_path: Path) -> None:
    law = law_of(contract)
    batches, path = law.batches(), tmp_path / "a.pt"
    metric = fed(law.make(), batches)
    torch.save(metric.state_dict(), path)
    content = path.read_bytes()
    generator = torch.Generator().manual_seed(0)
    for cut in torch.randint(0, len(content), (3,), generator=generator).tolist():
        path.write_bytes(content[:cut])
        with pytest.raises((RuntimeError, EOFError, OSError)):
            metric.load_state_dict(torch.load(path, weights_only=True))
        assert_same(quietly(metric.compute), law.reference(batches), law.atol)
