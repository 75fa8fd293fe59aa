"""A plain evaluation loop that saves its suite after every batch, to kill and to resume.

`python -m tests.core.resume_job FOLDER RANK DIE_AT`: goes on where FOLDER/RANK.pt says; at the
batch DIE_AT the process kills itself without a word, with one more batch seen than was saved.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from dynmetrics import MetricSuite, SuccessRate, TemporalAccuracy
from tests.core.toys import Extremes, Mean, Rows, Spread

BATCHES = 5


def suite() -> MetricSuite:
    return MetricSuite(
        {
            "accuracy": TemporalAccuracy(average="macro"),
            "rate": SuccessRate(),
            "mean": Mean(),
            "ends": Extremes(),
            "spread": Spread(),
            "rows": Rows(),
        }
    )


def batch(i: int, rank: int = 0) -> dict[str, Any]:
    """Batches whose sizes and numbers of timesteps differ."""
    generator = torch.Generator().manual_seed(100 * rank + i)
    n, steps = 2 + i % 3, 3 + (i + rank) % 4
    target = torch.randint(-1, 4, (n, steps), generator=generator)
    value = torch.randn(n, steps, generator=generator, dtype=torch.float64) / 3
    return {
        "preds": torch.randn(n, steps, 4, generator=generator), "target": target, "value": value,
        "success": value[:, 0] > 0, "features": value[:, :3], "labels": target[:, 0].abs(),
    }  # fmt: skip


def main(folder: Path, rank: int, die_at: int) -> None:
    metrics, saved = suite(), folder / f"{rank}.pt"
    start = 0
    if saved.exists():
        checkpoint = torch.load(saved, weights_only=True)
        metrics.load_state_dict(checkpoint["suite"])
        start = checkpoint["batches"]
    for i in range(start, BATCHES):
        metrics.update(**batch(i, rank))
        if i == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        unfinished = saved.with_suffix(".tmp")
        torch.save({"suite": metrics.state_dict(), "batches": i + 1}, unfinished)
        unfinished.replace(saved)
    torch.save(metrics.compute(), folder / f"{rank}.result")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
