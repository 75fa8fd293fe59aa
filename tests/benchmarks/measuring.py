"""One way to measure: our call and a peer's in turn, in one process, on one thread."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Row:
    """One line of the table: how many times faster ours is than the peer."""

    name: str
    peer: str
    ours_ms: float
    peer_ms: float
    ratio: float
    low: float
    high: float
    goal: str = ""


def compare(
    name: str,
    peer: str,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    *,
    rounds: int = 21,
    calls: int = 1,
    goal: str = "",
) -> Row:
    """Time `ours` and `theirs` in turn (A B A B); medians, and the quartiles of the paired ratio.

    `calls` is how many calls one reading covers: many for what takes microseconds.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for function in (ours, theirs):
            _seconds(function, calls)
        gc.collect()
        pairs = np.array([[_seconds(ours, calls), _seconds(theirs, calls)] for _ in range(rounds)])
    finally:
        torch.set_num_threads(threads)
    ratios = pairs[:, 1] / pairs[:, 0]
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    ours_ms, peer_ms = 1e3 * np.median(pairs, axis=0)
    return Row(name, peer, float(ours_ms), float(peer_ms), middle, low, high, goal)


def _seconds(function: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls
