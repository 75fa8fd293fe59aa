"""How time and memory grow with one size at a time, and the exponent that fits."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from dynmetrics import MetricSuite, StreamingMetric
from dynmetrics.prediction import SSIM, ChamferDistance
from dynmetrics.representation import KNNAccuracy, RankMe
from dynmetrics.retrieval import RecallAtK
from dynmetrics.rsa import RDM
from dynmetrics.temporal import TemporalAccuracy, TemporalConfidence
from tests.benchmarks.core_speed import Ours
from tests.memory import TensorMemory
from tests.ranks import run_ranks

Call = Callable[[], Any]
Case = tuple[str, str, list[int], Callable[[int], tuple[Call, StreamingMetric | MetricSuite]]]


@dataclass(frozen=True)
class Growth:
    """One curve: milliseconds, bytes of state and bytes at the peak of a call, for every size."""

    name: str
    axis: str
    sizes: list[int]
    ms: list[float]
    state_bytes: list[int]
    peak_bytes: list[int]

    def exponent(self, values: list[Any]) -> float:
        """The slope of log(value) over log(size): 1 is linear, 0 is constant."""
        if min(values) <= 0:
            return float("nan")
        return float(np.polyfit(np.log(self.sizes), np.log(values), 1)[0])


def run() -> list[Growth]:
    """All curves."""
    return [*(_curve(case) for case in _cases()), ranks()]


def _curve(case: Case, rounds: int = 9) -> Growth:
    name, axis, sizes, prepare = case
    ms, state, peak = [], [], []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for size in sizes:
        call, metric = prepare(size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
            with TensorMemory() as memory:
                call()
            ms.append(1e3 * float(np.median([_seconds(call) for _ in range(rounds)])))
        peak.append(memory.peak)
        members = [metric] if isinstance(metric, StreamingMetric) else dict(metric.items()).values()
        state.append(sum(m.memory_bytes() for m in members if isinstance(m, StreamingMetric)))
    torch.set_num_threads(threads)
    return Growth(name, axis, sizes, ms, state, peak)


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _cases() -> Iterator[Case]:
    doubled = [1, 2, 4, 8]
    yield "TemporalAccuracy.update", "B", [64 * k for k in doubled], lambda b: _accuracy(b, 20, 100)
    yield "TemporalAccuracy.update", "T", [10 * k for k in doubled], lambda t: _accuracy(64, t, 100)
    yield "TemporalAccuracy.update", "C", [50 * k for k in doubled], lambda c: _accuracy(64, 20, c)
    yield "TemporalConfidence.update", "C", [50 * k for k in doubled], _confidence
    yield "MetricSuite.compute", "metrics", [5 * k for k in doubled], _suite
    yield "RDM.compute", "K", [100 * k for k in doubled], lambda k: _rdm(k, 512)
    yield "RDM.compute", "D", [512 * k for k in doubled], lambda d: _rdm(200, d)
    yield "RankMe.update", "N", [512 * k for k in doubled], lambda n: _rankme(n, 256)
    yield "RankMe.update", "D", [128 * k for k in doubled], lambda d: _rankme(1024, d)
    yield "KNNAccuracy.compute", "N", [2000 * k for k in doubled], _knn
    yield "RecallAtK.compute", "N", [500 * k for k in doubled], _recall
    yield "ChamferDistance.update", "N", [1000 * k for k in doubled], _chamfer
    yield "SSIM.update", "B", [2 * k for k in doubled], _ssim


def _accuracy(b: int, t: int, c: int) -> tuple[Call, StreamingMetric]:
    metric, logits, labels = TemporalAccuracy(), torch.randn(b, t, c), torch.randint(c, (b, t))
    return lambda: metric.update(logits, labels), metric


def _confidence(c: int) -> tuple[Call, StreamingMetric]:
    metric, logits, labels = TemporalConfidence(), torch.randn(64, 20, c), torch.randint(c, (64,))
    return lambda: metric.update(logits, labels), metric


def _suite(number: int) -> tuple[Call, MetricSuite]:
    suite = MetricSuite({f"m{i}": Ours() for i in range(number)})
    suite.update(value=torch.rand(16, 50))
    return lambda: _afresh(suite), suite


def _afresh(metric: Any) -> Any:
    """`compute` without the answer of the last call."""
    members = [metric] if isinstance(metric, StreamingMetric) else dict(metric.items()).values()
    for member in members:
        member._computed = None
    return metric.compute()


def _rdm(conditions: int, features: int) -> tuple[Call, StreamingMetric]:
    metric = RDM(conditions=list(range(conditions)))
    metric.update(torch.randn(conditions, features), torch.arange(conditions))
    return lambda: _afresh(metric), metric


def _rankme(n: int, features: int) -> tuple[Call, StreamingMetric]:
    metric, batch = RankMe(), torch.randn(n, features)
    return lambda: metric.update(batch), metric


def _knn(n: int) -> tuple[Call, StreamingMetric]:
    metric = KNNAccuracy()
    metric.update(torch.randn(n, 64), torch.randint(10, (n,)), split="train")
    metric.update(torch.randn(500, 64), torch.randint(10, (500,)), split="test")
    return lambda: _afresh(metric), metric


def _recall(n: int) -> tuple[Call, StreamingMetric]:
    metric = RecallAtK()
    metric.update(torch.randn(n, 64), torch.randn(n, 64))
    return lambda: _afresh(metric), metric


def _chamfer(points: int) -> tuple[Call, StreamingMetric]:
    metric = ChamferDistance()
    x, y = torch.randn(1, points, 3), torch.randn(1, points, 3)
    return lambda: metric.update(x, y), metric


def _ssim(b: int) -> tuple[Call, StreamingMetric]:
    metric, x, y = SSIM(data_range=1.0), torch.rand(b, 3, 96, 96), torch.rand(b, 3, 96, 96)
    return lambda: metric.update(x, y), metric


def ranks() -> Growth:
    """One compute of ten metrics over 1 to 4 processes, which here share two cores."""
    sizes = [1, 2, 3, 4]
    reports = [run_ranks(_on_ranks, size)[0] for size in sizes]
    ms, state, peak = map(list, zip(*reports, strict=True))
    return Growth("MetricSuite.compute", "ranks", sizes, ms, state, peak)


def _on_ranks(_rank: int) -> tuple[float, int, int]:
    call, suite = _suite(10)
    call()
    with TensorMemory() as memory:
        call()
    dist.barrier()
    seconds = float(np.median([_seconds(call) for _ in range(41)]))
    states = [metric for _, metric in suite.items() if isinstance(metric, StreamingMetric)]
    return 1e3 * seconds, sum(metric.memory_bytes() for metric in states), memory.peak
