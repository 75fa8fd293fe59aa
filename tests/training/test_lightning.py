"""The callback in a real Trainer with real loggers: names and values equal a pooled recount."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from dynmetrics.training import History, MetricsCallback
from tests.training.toy import Scaling, Scores, loader, suite, trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*have no `val_dataloader`",
    "ignore:Checkpoint directory .* exists",
    "ignore:.*treespec.*:FutureWarning",
    "ignore:.*isinstance.*LeafSpec.*",
)


def _read(folder: Path) -> list[dict[str, str]]:
    [path] = folder.rglob("metrics.csv")
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("steps", [1, 5])
def test_values_names_and_the_callbacks_that_follow(tmp_path: Path, steps: int) -> None:
    train, val = Scores(11, steps, 0), Scores(7, steps, 1)
    picture = tmp_path / "progress.png"
    callback = MetricsCallback(suite(), history=tmp_path / "history.jsonl", picture=picture)
    name = "val_accuracy"
    mode = callback.direction(name)
    assert mode == "max"
    keeper = ModelCheckpoint(tmp_path, monitor=name, mode=mode, filename="{val_accuracy:.4f}")
    stopper = EarlyStopping(name, mode=mode, patience=1)
    loggers: list[Any] = [CSVLogger(tmp_path / "csv"), TensorBoardLogger(tmp_path / "board")]
    run = trainer(
        tmp_path, max_epochs=5, logger=loggers, enable_checkpointing=True,
        callbacks=[callback, keeper, stopper],
    )  # fmt: skip
    run.fit(Scaling(), loader(train), loader(val))

    expected, curve = val.accuracy()
    assert float(run.callback_metrics[name]) == pytest.approx(expected, abs=1e-6)
    assert keeper.best_model_path.endswith(f"val_accuracy={expected:.4f}.ckpt")
    assert stopper.stopped_epoch == 1
    rows = [row for row in _read(tmp_path / "csv") if row.get(name)]
    assert [float(row[name]) for row in rows] == pytest.approx([expected] * 2, abs=1e-6)
    train_rows = [row for row in _read(tmp_path / "csv") if row.get("train_accuracy")]
    assert float(train_rows[0]["train_accuracy"]) == pytest.approx(train.accuracy()[0], abs=1e-6)

    history = History.load(tmp_path / "history.jsonl")
    records = [record for record in history if record.stage == "val"]
    assert [record.epoch for record in records] == [1, 2]
    assert records[-1].results[name] == pytest.approx(expected, abs=1e-12)
    np.testing.assert_allclose(records[-1].results["val_accuracy_top1"], curve, atol=1e-12)
    assert records[-1].axes["val_accuracy_top1"] == "t"
    assert "val_loss" in records[-1].results
    assert history.stop_reason == "EarlyStopping on val_accuracy"
    assert history.best(name).epoch == 1
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_boards_hold_scalars_and_a_figure(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    callback = MetricsCallback(suite(), train=False, verbose=False)
    logger = TensorBoardLogger(tmp_path)
    val = Scores(7, 3, 1)
    trainer(tmp_path, logger=logger, callbacks=[callback]).fit(
        Scaling(), loader(Scores(8, 3, 0)), loader(val)
    )
    board = EventAccumulator(logger.log_dir)
    board.Reload()
    assert board.Scalars("val_accuracy")[-1].value == pytest.approx(val.accuracy()[0], abs=1e-6)
    assert "val_accuracy_top1" in board.Tags()["images"]


def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    from lightning.pytorch.loggers import WandbLogger

    monkeypatch.setenv("WANDB_SILENT", "true")
    callback = MetricsCallback(suite(), train=False, verbose=False)
    logger = WandbLogger(save_dir=tmp_path, offline=True, project="dynmetrics")
    val = Scores(7, 3, 1)
    trainer(tmp_path, logger=logger, callbacks=[callback]).fit(
        Scaling(), loader(Scores(8, 3, 0)), loader(val)
    )
    summary = dict(logger.experiment.summary)
    wandb.finish()
    assert summary["val_accuracy"] == pytest.approx(val.accuracy()[0], abs=1e-6)
    assert list(tmp_path.rglob("val_accuracy_top1*.png"))


def test_curves_as_scalars_on_request(tmp_path: Path) -> None:
    callback = MetricsCallback(suite(), log_curves=True, figures=False, verbose=False)
    run = trainer(tmp_path, logger=CSVLogger(tmp_path), callbacks=[callback])
    val = Scores(7, 3, 1)
    run.fit(Scaling(), loader(Scores(8, 3, 0)), loader(val))
    row = next(row for row in _read(tmp_path) if row.get("val_accuracy_top1_t02"))
    assert float(row["val_accuracy_top1_t02"]) == pytest.approx(val.accuracy()[1][2], abs=1e-6)


def test_a_full_sanity_check_is_row_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    callback = MetricsCallback(suite(), figures=False)
    val = Scores(7, 3, 1)
    run = trainer(tmp_path, num_sanity_val_steps=-1, callbacks=[callback])
    run.fit(Scaling(), loader(Scores(8, 3, 0)), loader(val))
    first = callback.history.records[0]
    assert (first.epoch, first.step, first.stage) == (0, 0, "val")
    assert first.results["val_accuracy"] == pytest.approx(val.accuracy()[0])
    printed = capsys.readouterr().out
    lines = [line.split() for line in printed.splitlines() if line.strip()[:1].isdigit()]
    assert [line[:2] for line in lines] == [["0", "0"], ["2", "1"], ["4", "2"]]
    assert printed.rstrip().endswith("Stopped: max_epochs=2 completed")
    table = callback.history.table().splitlines()
    assert table[-1] == "Stopped: max_epochs=2 completed"


def test_a_short_sanity_check_pollutes_nothing(tmp_path: Path) -> None:
    callback = MetricsCallback(suite(), figures=False, verbose=False)
    val = Scores(7, 3, 1)
    run = trainer(tmp_path, num_sanity_val_steps=1, callbacks=[callback])
    run.fit(Scaling(), loader(Scores(8, 3, 0)), loader(val))
    values = [r.results["val_accuracy"] for r in callback.history if r.stage == "val"]
    assert values == pytest.approx([val.accuracy()[0]] * 2, abs=1e-12)


def test_every_loader_has_its_own_suite_and_names(tmp_path: Path) -> None:
    callback = MetricsCallback(suite(), figures=False, verbose=False)
    one, other = Scores(7, 3, 1), Scores(5, 3, 2)
    run = trainer(tmp_path, callbacks=[callback])
    run.fit(Scaling(), loader(Scores(8, 3, 0)), [loader(one), loader(other)])
    record = next(r for r in callback.history if r.stage == "val")
    assert record.results["val_loader0_accuracy"] == pytest.approx(one.accuracy()[0])
    assert record.results["val_loader1_accuracy"] == pytest.approx(other.accuracy()[0])
    assert callback.direction("val_loader1_accuracy") == "max"


def test_validate_and_test_alone(tmp_path: Path) -> None:
    callback = MetricsCallback(suite(), figures=False, verbose=False)
    run = trainer(tmp_path, callbacks=[callback])
    data = Scores(7, 3, 1)
    [validated] = run.validate(Scaling(), loader(data), verbose=False)
    [tested] = run.test(Scaling(), loader(data), verbose=False)
    assert validated["val_accuracy"] == pytest.approx(data.accuracy()[0], abs=1e-6)
    assert tested["test_accuracy"] == pytest.approx(data.accuracy()[0], abs=1e-6)
    assert [record.stage for record in callback.history] == ["val", "test"]


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_precision_changes_no_count(tmp_path: Path, precision: Any) -> None:
    callback = MetricsCallback(suite(), figures=False, verbose=False)
    data = Scores(9, 3, 1)
    data.scores = data.scores.to(torch.bfloat16).float()
    run = trainer(tmp_path, precision=precision, callbacks=[callback], accumulate_grad_batches=2)
    run.fit(Scaling(), loader(Scores(8, 3, 0)), loader(data))
    record = [record for record in callback.history if record.stage == "val"][-1]
    assert record.results["val_accuracy"] == pytest.approx(data.accuracy()[0], abs=0.15)
    valid = record.results["val_accuracy_valid"]
    assert valid == [int((data.labels[:, t] >= 0).sum()) for t in range(3)]


def test_limited_batches(tmp_path: Path) -> None:
    callback = MetricsCallback(suite(), figures=False, verbose=False)
    data = Scores(9, 3, 1)
    run = trainer(tmp_path, limit_val_batches=1, callbacks=[callback])
    run.fit(Scaling(), loader(Scores(8, 3, 0)), loader(data))
    value = [r.results["val_accuracy"] for r in callback.history if r.stage == "val"][-1]
    assert value == pytest.approx(data.accuracy(stop=4)[0])


def test_what_was_gathered_survives_an_error(tmp_path: Path) -> None:
    callback = MetricsCallback(suite(), history=tmp_path / "h.jsonl", figures=False, verbose=False)
    train = Scores(12, 3, 0)
    run = trainer(tmp_path, callbacks=[callback])
    with pytest.raises(RuntimeError, match="out of luck"):
        run.fit(Scaling(fail_at=5), loader(train), loader(Scores(7, 3, 1)))
    history = History.load(tmp_path / "h.jsonl")
    assert history.stop_reason == "RuntimeError: out of luck"
    partial = [record for record in history if record.stage == "train"][-1]
    assert partial.epoch == 2
    assert partial.results["train_accuracy"] == pytest.approx(train.accuracy(stop=8)[0])


def test_missing_inputs_are_named(tmp_path: Path) -> None:
    class Silent(Scaling):
        def _step(self, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
            step = super()._step(batch)
            return {"loss": step["loss"], "logits": step["preds"]}

    callback = MetricsCallback(suite(), figures=False, verbose=False)
    data = loader(Scores(8, 3, 0))
    with pytest.raises(ValueError, match=r"'preds'.*logits.*labels"):
        trainer(tmp_path, callbacks=[callback]).fit(Silent(), data, data)
    named = MetricsCallback(
        suite(), inputs={"preds": "logits", "target": "labels"}, figures=False, verbose=False
    )
    trainer(tmp_path, callbacks=[named]).fit(Silent(), data, data)
    assert "val_accuracy" in named.history.scalars()
    by_function = MetricsCallback(
        suite(), figures=False, verbose=False,
        inputs=lambda outputs, batch: {"preds": outputs["logits"], "target": batch["labels"]},
    )  # fmt: skip
    trainer(tmp_path, callbacks=[by_function]).fit(Silent(), data, data)
    assert "val_accuracy" in by_function.history.scalars()
    with pytest.raises(ValueError, match="direction"):
        named.direction("val_accuracy_top1")


def _job(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The training job in a process of its own, killed if it hangs."""
    command = [sys.executable, "-m", "tests.training.job", str(folder), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip


def test_killed_in_mid_epoch_and_resumed(tmp_path: Path) -> None:
    """SIGKILL after batch 2 of 3 in epoch 2: the resumed history is that of a whole run."""
    whole = _job(tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    killed = _job(tmp_path / "killed", "--die-at", "5")
    assert killed.returncode == -signal.SIGKILL
    half = History.load(tmp_path / "killed" / "history.jsonl")
    assert {r.epoch for r in half if r.stage == "val"} == {1}
    resumed = _job(tmp_path / "killed", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    expected = History.load(tmp_path / "whole" / "history.jsonl")
    again = History.load(tmp_path / "killed" / "history.jsonl")
    assert again.stop_reason == expected.stop_reason == "max_epochs=3 completed"
    assert [asdict(record) for record in again] == [asdict(record) for record in expected]


@pytest.mark.parametrize("steps", [1, 5])
def test_two_processes_equal_a_pooled_recount(tmp_path: Path, steps: int) -> None:
    """21 items on 2 ranks count 21; a checkpoint of both resumes without counting twice."""
    run = _job(tmp_path, "--devices", "2", "--steps", str(steps))
    assert run.returncode == 0, run.stderr
    history = History.load(tmp_path / "history.jsonl")
    val = [record for record in history if record.stage == "val"]
    train = [record for record in history if record.stage == "train"]
    expected, curve = Scores(21, steps, 1).accuracy()
    assert len(val) == len(train) == 3
    for record in val:
        assert record.results["val_accuracy"] == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(record.results["val_accuracy_top1"], curve, atol=1e-12)
    assert train[0].results["train_accuracy"] == pytest.approx(Scores(24, steps, 0).accuracy()[0])
    assert "sync_dist" not in run.stderr
    rows = [row for row in _read(tmp_path) if row.get("val_accuracy")]
    assert [float(row["val_accuracy"]) for row in rows] == pytest.approx([expected] * 3, abs=1e-6)
