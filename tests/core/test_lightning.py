"""Metrics that a LightningModule logs itself: real Trainer, real logger, values recounted."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from tests.core.lightning_job import (
    N_TRAIN,
    N_VAL,
    STEPS,
    Logging,
    Placed,
    data,
    loaders,
    recount,
    trainer,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:Checkpoint directory .* exists",
    "ignore:.*treespec.*:FutureWarning",
    "ignore:.*isinstance.*LeafSpec.*",
)


def logged(folder: Path) -> dict[str, list[float]]:
    """The columns of metrics.csv, one value for each epoch."""
    [path] = folder.rglob("metrics.csv")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    return {name: [float(row[name]) for row in rows if row[name]] for name in rows[0]}


def expected_columns() -> dict[str, float]:
    overall, curve, mean = recount(data(N_VAL, 1))
    names = ("accuracy", "overall", "suite_accuracy", "suite_curve")
    steps = {f"suite_curve_accuracy_t{t:02d}": curve[t] for t in range(STEPS)}
    counts = {f"suite_curve_valid_t{t:02d}": float(N_VAL) for t in range(STEPS)}
    return {**dict.fromkeys(names, overall), **steps, **counts, "suite_mean": mean}


def check_columns(columns: dict[str, list[float]], values: dict[str, Any]) -> None:
    for name, value in expected_columns().items():
        # Lightning's own mean over steps keeps numbers of a dict in float32.
        assert columns[name] == pytest.approx([value] * len(columns[name]), rel=1e-6)
        assert float(values[name]) == pytest.approx(value, rel=1e-6)
    assert float(values["accuracy"]) == pytest.approx(expected_columns()["accuracy"], abs=1e-12)


@pytest.mark.parametrize("precision", ["32-true", "bf16-true", "bf16-mixed", "64-true"])
def test_scalars_equal_a_pooled_recount(tmp_path: Path, precision: Any) -> None:
    model = Logging()
    run = trainer(tmp_path, precision=precision)
    if precision == "bf16-true":
        # Scores that bfloat16 rounds to equal ones would be another question.
        train, val = loaders()
        for part in (train, val):
            scores = part.dataset.tensors[0]  # type: ignore[attr-defined]
            scores.copy_(scores.argsort(-1).argsort(-1))
        run.fit(model, train, val)
    else:
        run.fit(model, *loaders())
    assert run.num_sanity_val_batches == [2]
    columns = logged(tmp_path)
    assert len(columns["accuracy"]) == len(columns["suite_curve"]) == 2
    check_columns(columns, run.callback_metrics)
    assert run.callback_metrics["accuracy"].dtype is torch.float64
    assert all(state.dtype in (torch.int64, torch.float64) for state in states(model))


def states(model: Logging) -> list[torch.Tensor]:
    metrics = [metric for _, metric in model.suite.items()]
    return [s for m in metrics for s in m.metric_state.values() if isinstance(s, torch.Tensor)]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("classes", "does not contain a single element"),
        ("curve", "return of the metric logged as 'curve' must be a tensor. Found {'overall'"),
        ("forward", "the tensor must have a single element"),
    ],
)
def test_a_vector_is_not_logged_in_silence(tmp_path: Path, what: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path).fit(Logging(what), *loaders())


@pytest.mark.parametrize("at", ["end", "middle"])
def test_a_resumed_epoch_counts_every_batch_once(tmp_path: Path, at: str) -> None:
    """A checkpoint after validation still holds the training metrics of its epoch."""
    options: dict[str, Any] = {"enable_checkpointing": True, "logger": False}

    def keeper() -> ModelCheckpoint:
        every = 4 if at == "middle" else None
        return ModelCheckpoint(
            tmp_path, save_top_k=-1, filename="{epoch}-{step}", every_n_train_steps=every
        )

    whole = Logging()
    run = trainer(tmp_path, callbacks=[keeper()], **options)
    run.fit(whole, Placed(data(N_TRAIN, 0)), loaders()[1])
    saved = tmp_path / ("epoch=0-step=6.ckpt" if at == "end" else "epoch=0-step=4.ckpt")
    held = torch.load(saved, weights_only=False)["state_dict"]["train_accuracy.update_count"]
    assert int(held) == (6 if at == "end" else 4)
    resumed = Logging()
    again = trainer(tmp_path, callbacks=[keeper()], **options)
    again.fit(resumed, Placed(data(N_TRAIN, 0)), loaders()[1], ckpt_path=saved)
    assert whole.updates == [(0, 6), (1, 6)]
    assert resumed.updates == whole.updates[1 if at == "end" else 0 :]
    for name in ("accuracy", "train_accuracy"):
        assert again.callback_metrics[name] == run.callback_metrics[name]


def test_two_processes_equal_a_pooled_recount(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.core.lightning_job", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    job = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env=environment
    )
    assert job.returncode == 0, job.stderr
    columns = logged(tmp_path)
    for rank in range(2):
        check_columns(columns, json.loads((tmp_path / f"rank{rank}.json").read_text()))
