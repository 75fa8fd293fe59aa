"""Real processes for everything that is said about several ranks.

Each rank is a process of its own with a gloo process group. A rank that hangs is killed and makes
the test red. A fork server that has torch loaded makes a start cheap, and keeps the threads of the
test process out of the ranks.
"""

from __future__ import annotations

import multiprocessing
import pickle
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

COLLECTIVE_TIMEOUT = timedelta(seconds=30)
PATIENCE_SECONDS = 90

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "torchmetrics", "dynmetrics"])


def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *arguments: Any,
    patience: float = PATIENCE_SECONDS,
) -> list[Any]:
    """`function(rank, *arguments)` on every rank; the results in rank order.

    Raises:
        AssertionError: with the traceback of a rank that failed, or naming the ranks that hang.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder)
        processes = [
            _context.Process(target=_rank, args=(rank, world_size, store, function, arguments))
            for rank in range(world_size)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join(patience)
        hanging = [rank for rank, process in enumerate(processes) if process.is_alive()]
        for process in processes:
            process.kill()
            process.join()
        assert not hanging, f"ranks {hanging} of {world_size} hang"
        outcomes = [_outcome(store / f"result{rank}", rank) for rank in range(world_size)]
    failed = [text for good, text in outcomes if not good]
    assert not failed, "\n".join(failed)
    return [value for _, value in outcomes]


def _outcome(path: Path, rank: int) -> tuple[bool, Any]:
    if not path.exists():
        return False, f"rank {rank} died without a word"
    result: tuple[bool, Any] = pickle.loads(path.read_bytes())
    return result


def _rank(
    rank: int,
    world_size: int,
    store: Path,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store / 'rendezvous'}",
            rank=rank,
            world_size=world_size,
            timeout=COLLECTIVE_TIMEOUT,
        )
        outcome = (True, function(rank, *arguments))
        # A rank that leaves early would tear the connections of those still talking.
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        outcome = (False, f"rank {rank}:\n{traceback.format_exc()}")
    (store / f"result{rank}").write_bytes(pickle.dumps(outcome))


def error_of(call: Callable[[], Any]) -> str:
    """The text of the ValueError that `call` raises; for use inside a rank."""
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("expected a ValueError")
