"""A training job to start in a process of its own, to kill and to resume."""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from dynmetrics.training import MetricsCallback
from tests.training.toy import Scaling, Scores, suite, trainer


class Placed:
    """A loader that keeps its place in a checkpoint."""

    def __init__(self, data: Scores, batch_size: int) -> None:
        self.data, self.batch_size, self.place = data, batch_size, 0

    def __len__(self) -> int:
        return len(self.data) // self.batch_size

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        for i in range(self.place, len(self)):
            items = slice(i * self.batch_size, (i + 1) * self.batch_size)
            self.place = i + 1
            yield {"scores": self.data.scores[items], "labels": self.data.labels[items]}
        self.place = 0

    def state_dict(self) -> dict[str, Any]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.place = state["place"]


class Unpadded(torch.utils.data.Sampler[int]):
    """Every rank its share, of any length, so that no item is seen twice."""

    def __init__(self, n: int) -> None:
        self.n = n

    def _share(self) -> range:
        ready = torch.distributed.is_initialized()
        rank = torch.distributed.get_rank() if ready else 0
        return range(rank, self.n, torch.distributed.get_world_size() if ready else 1)

    def __len__(self) -> int:
        return len(self._share())

    def __iter__(self) -> Iterator[int]:
        return iter(self._share())


class Mortal(Scaling):
    """Dies without a word at the beginning of a step."""

    die_at = -1

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> dict[str, Any]:
        if self.global_step == self.die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(batch, batch_idx)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--die-at", type=int, default=-1)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    callback = MetricsCallback(
        suite(), history=options.folder / "history.jsonl", figures=False, verbose=False
    )
    keeper = ModelCheckpoint(
        options.folder, every_n_train_steps=1, save_top_k=-1, filename="{step}"
    )
    several = {"devices": options.devices, "strategy": "ddp", "use_distributed_sampler": False}
    run = trainer(
        options.folder, max_epochs=3, enable_checkpointing=True, callbacks=[callback, keeper],
        logger=CSVLogger(options.folder), **(several if options.devices > 1 else {}),
    )  # fmt: skip
    train, val = (
        Scores(24 if options.devices > 1 else 12, options.steps, 0),
        Scores(21, options.steps, 1),
    )
    loader: Any = Placed(train, 4)
    if options.devices > 1:
        sampler: Any = DistributedSampler(
            train, options.devices, int(os.environ.get("LOCAL_RANK", 0))
        )
        loader = DataLoader(train, batch_size=4, sampler=sampler)
    model = Mortal()
    model.die_at = options.die_at
    checkpoint = options.folder / "step=5.ckpt" if options.resume else None
    validation = DataLoader(val, batch_size=4, sampler=Unpadded(len(val)))
    run.fit(model, loader, validation, ckpt_path=checkpoint)


if __name__ == "__main__":
    main()
