"""Real processes for everything that is said about several ranks.

Each rank is a process of its own with a gloo process group. The ranks of one world size stay alive
from test to test, for to start them costs more than most tests; a rank that fails or hangs takes
its whole world with it, so that no test finds the ruins of another. A hang is a red test.
"""

from __future__ import annotations

import atexit
import multiprocessing
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

COLLECTIVE_TIMEOUT = timedelta(seconds=30)
PATIENCE_SECONDS = 120

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "torchmetrics", "dynmetrics"])


class World:
    """The processes of all ranks of one world size."""

    def __init__(self, world_size: int) -> None:
        self.folder = tempfile.TemporaryDirectory()
        store = Path(self.folder.name) / "rendezvous"
        pipes = [_context.Pipe() for _ in range(world_size)]
        self.connections = [ours for ours, _ in pipes]
        self.processes = [
            _context.Process(target=_serve, args=(rank, world_size, store, theirs), daemon=True)
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in self.processes:
            process.start()
        for _, theirs in pipes:
            theirs.close()

    def run(self, function: Callable[..., Any], arguments: tuple[Any, ...], patience: float) -> Any:
        """The outcome of every rank: (True, value), (False, traceback), or None for a hang."""
        task = pickle.dumps((function, arguments))
        for connection in self.connections:
            connection.send_bytes(task)
        deadline = time.monotonic() + patience
        return [self._outcome(rank, deadline) for rank in range(len(self.processes))]

    def _outcome(self, rank: int, deadline: float) -> tuple[bool, Any] | None:
        if not self.connections[rank].poll(max(0.0, deadline - time.monotonic())):
            return None
        try:
            outcome: tuple[bool, Any] = pickle.loads(self.connections[rank].recv_bytes())
        except EOFError:
            return False, f"rank {rank} died without a word"
        return outcome

    def end(self) -> None:
        """Kill all ranks."""
        for process in self.processes:
            process.kill()
        for process, connection in zip(self.processes, self.connections, strict=True):
            process.join()
            connection.close()
        self.folder.cleanup()


_worlds: dict[int, World] = {}


@atexit.register
def _end_all() -> None:
    while _worlds:
        _worlds.popitem()[1].end()


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
    if world_size not in _worlds:
        _worlds[world_size] = World(world_size)
    outcomes = _worlds[world_size].run(function, arguments, patience)
    if not all(outcome and outcome[0] for outcome in outcomes):
        _worlds.pop(world_size).end()
    hanging = [rank for rank, outcome in enumerate(outcomes) if outcome is None]
    failed = [outcome[1] for outcome in outcomes if outcome and not outcome[0]]
    assert not failed, "\n".join(failed)
    assert not hanging, f"ranks {hanging} of {world_size} hang"
    return [value for _, value in outcomes]


def _serve(rank: int, world_size: int, store: Path, tasks: Connection) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world_size,
        timeout=COLLECTIVE_TIMEOUT,
    )
    while True:
        try:
            task = tasks.recv_bytes()
        except EOFError:
            return
        try:
            torch.manual_seed(0)
            function, arguments = pickle.loads(task)
            outcome = pickle.dumps((True, function(rank, *arguments)))
        except BaseException:
            outcome = pickle.dumps((False, f"rank {rank}:\n{traceback.format_exc()}"))
        tasks.send_bytes(outcome)


def error_of(call: Callable[[], Any]) -> str:
    """The text of the ValueError that `call` raises; for use inside a rank."""
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("expected a ValueError")
