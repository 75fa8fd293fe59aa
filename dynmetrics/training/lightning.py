"""MetricsCallback: a suite for every stage of a Lightning Trainer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from dynmetrics.core.checks import check_flag, describe, refuse
from dynmetrics.core.suite import MetricSuite
from dynmetrics.training.history import BATCH, History, Record
from dynmetrics.training.inputs import InputMap
from dynmetrics.training.loggers import log_figures
from dynmetrics.training.pictures import check_picture, draw_history
from dynmetrics.training.stage_suites import StageSuites, stage_of
from dynmetrics.training.stages import (
    checks_everything,
    keep_quiet_about,
    log_interval,
    logged_by_module,
    stop_reason,
    suite_keys,
)
from dynmetrics.training.tables import RunningTable

_CHECKPOINT_KEY = "dynmetrics"


class MetricsCallback(Callback):
    r"""Feeds, logs, records and prints the metrics of a training run.

    A copy of the suite serves every stage and dataloader, so none pollutes another and the sanity
    check pollutes none. It is updated from what the step returns, synchronised once at the end of
    the stage, logged as scalars that `ModelCheckpoint`, `EarlyStopping` and every logger take, and
    recorded with its curves in a `History`. Results are named `{stage}_{name}`, such as
    `val_accuracy`; with several dataloaders `val_loader0_accuracy` and so on.

    A fit that begins at step 0 is a new run of the history, after another fit with this callback
    or with its file: its rows are its own, and tables number the runs. A fit that goes on, from a
    checkpoint with a history in it or in the same Trainer, goes on with its run.

    Row 0 of the history, before training, needs a sanity check over the whole validation set:
    `Trainer(num_sanity_val_steps=-1)`. Epochs count from 1, as the number of those completed.

    A checkpoint holds what all ranks have gathered and the history so far. A run resumed in
    mid-epoch goes on with them; whether batches are seen twice is up to the dataloader: one that
    keeps its place (stateful) gives the values of an uninterrupted run.

    Args:
        suite: what to measure in every stage; its own prefix is replaced.
        train: another suite for training, or False for none; so `val` and `test`.
        val: as `train`, for validation.
        test: as `train`, for tests.
        inputs: where to find the suite's inputs. By default by name in the mapping that the step
            returns, then in the batch. A mapping renames: `{"preds": "logits"}`. A function
            `f(outputs, batch)` returns all inputs.
        history: a History, or the path of its file; in memory if not given.
        log_curves: log curves to the loggers too, an entry each: `val_accuracy_accuracy_t07`.
        figures: draw curves into loggers that take figures (needs the extra "plot").
        verbose: print a row of the table after every epoch.
        picture: a file that shows the progress of training, drawn anew after every epoch (needs
            the extra "plot").

    Raises:
        ValueError: at the first batch, if an input is missing; the message lists what is there.
    """

    def __init__(
        self,
        suite: MetricSuite,
        *,
        train: MetricSuite | bool | None = None,
        val: MetricSuite | bool | None = None,
        test: MetricSuite | bool | None = None,
        inputs: InputMap | None = None,
        history: History | str | Path | None = None,
        log_curves: bool = False,
        figures: bool = True,
        verbose: bool = True,
        picture: str | Path | None = None,
    ) -> None:
        self._suites = StageSuites(suite, {"train": train, "val": val, "test": test}, inputs)
        flags = {"log_curves": log_curves, "figures": figures, "verbose": verbose}
        for option, flag in flags.items():
            check_flag(option, flag)
        self._picture = check_picture(picture)
        self.history = history if isinstance(history, History) else History(history)
        self._log_curves = log_curves
        self._figures = figures
        self._table = RunningTable(self.history) if verbose else None
        self._results: dict[str, dict[str, Any]] = {}
        self._logged: set[str] = set()
        self._noted_step = -1
        self._resumed = False

    def direction(self, name: str) -> str:
        """The `mode` of ModelCheckpoint and EarlyStopping for a result: "max" or "min".

        Raises:
            ValueError: for a result that has no direction.
        """
        directions = self._suites.directions
        higher = directions.get(re.sub(r"_loader\d+_", "_", str(name), count=1))
        if higher is None:
            known = [key for key, value in directions.items() if value is not None]
            raise refuse("name", f"a result with a direction: {known}", describe(name))
        return "max" if higher else "min"

    # ------------------------------------------------------------------------ the stages' hooks

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Keep the file of the history on one rank only."""
        if not trainer.is_global_zero:
            self.history.path = None
        self.history.add_directions(self._suites.directions)
        self._resumed = False

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin a run, unless this one goes on: from a checkpoint, or in the same Trainer."""
        if not self._resumed:
            self._suites.reset()
            if trainer.global_step == 0 and self.history.is_trained:
                self.history.begin_run()
        self._results, self._noted_step = {}, -1
        self.history.go_on()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start afresh; Lightning does not call this when it resumes in mid-epoch."""
        self._begin("train")

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Add a training batch, and note its loss from time to time."""
        self._suites.update("train", pl_module.device, outputs, batch)
        step = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None and step != self._noted_step and step % log_interval(trainer) == 0:
            self._noted_step = step
            epoch = trainer.current_epoch + 1
            self.history.record({"train_loss": loss}, stage=BATCH, epoch=epoch, step=step)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log and record the epoch's training results."""
        self._log("train", trainer, pl_module)
        self._record("train", trainer, trainer.current_epoch + 1)
        self._show(trainer)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start afresh, also after a validation that an error has ended."""
        self._begin("val")

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any,
        batch_idx: int, dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Add a validation batch."""
        if not trainer.sanity_checking or checks_everything(trainer):
            key = suite_keys("val", trainer)[dataloader_idx]
            self._suites.update(key, pl_module.device, outputs, batch)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Synchronise, and log the validation results."""
        self._log("val", trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the validation results, with those that the module has logged itself."""
        running = trainer.state.fn == "fit" and not trainer.sanity_checking
        self._record("val", trainer, trainer.current_epoch + int(running))
        if not (running and trainer.is_last_batch):
            self._show(trainer)

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start afresh, also after a test that an error has ended."""
        self._begin("test")

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any,
        batch_idx: int, dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Add a test batch."""
        key = suite_keys("test", trainer)[dataloader_idx]
        self._suites.update(key, pl_module.device, outputs, batch)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Synchronise, and log the test results."""
        self._log("test", trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the test results."""
        self._record("test", trainer, trainer.current_epoch)
        self._show(trainer)

    # ------------------------------------------------------------------------ end and resumption

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """Keep what was gathered of the broken epoch, where one process has it all."""
        if trainer.state.fn == "fit" and trainer.world_size == 1:
            gathered = self._suites.gathered("train")
            if gathered:
                self._results["train"] = gathered
                self._record("train", trainer, trainer.current_epoch + 1)
        self._stop(f"{type(exception).__name__}: {exception}".removesuffix(": "), trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note why training stopped."""
        self._stop(stop_reason(trainer), trainer)

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Save the joint states of all ranks; Lightning calls this on every one of them."""
        records = [asdict(record) for record in self.history]
        checkpoint[_CHECKPOINT_KEY] = {
            "suites": self._suites.states(), "history": records, "run": self.history.run,
        }  # fmt: skip

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take up states and history; the joint states on one rank, so that they count once."""
        if trainer.state.fn != "fit" or _CHECKPOINT_KEY not in checkpoint:
            return
        saved = checkpoint[_CHECKPOINT_KEY]
        for key, state in saved["suites"].items():
            suite = self._suites.get(key, pl_module.device)
            if suite is not None and trainer.is_global_zero:
                suite.load_state_dict(state)
        self.history.resume([Record(**record) for record in saved["history"]], saved.get("run"))
        self._resumed = True
        if self._table is not None:
            self._table.begin_again()

    # -------------------------------------------------------------------------------- details

    def _begin(self, stage: str) -> None:
        """Forget what the stage has left, also where an error kept it from ending."""
        self._suites.reset(stage)
        self._results = {k: v for k, v in self._results.items() if stage_of(k) != stage}

    def _log(self, stage: str, trainer: Trainer, module: LightningModule) -> None:
        """Compute, log and reset all suites of a stage."""
        if trainer.sanity_checking and not checks_everything(trainer):
            return
        for key in suite_keys(stage, trainer):
            suite = self._suites.get(key, module.device)
            if suite is None:
                continue
            self._results[key] = results = suite.compute()
            suite.reset()
            if trainer.sanity_checking:
                continue
            scalars = suite.scalars(results, curves=self._log_curves)
            self._logged.update(scalars)
            keep_quiet_about(scalars)
            module.log_dict(scalars, on_step=False, on_epoch=True, batch_size=1)
            if self._figures and trainer.is_global_zero:
                log_figures(trainer.loggers, results, suite.axes, trainer.global_step)

    def _record(self, stage: str, trainer: Trainer, epoch: int) -> None:
        """Write the results of a stage, with what the module itself has logged, as one record."""
        results: dict[str, Any] = {}
        axes: dict[str, tuple[str, ...]] = {}
        for key in [key for key in self._results if stage_of(key) == stage]:
            results.update(self._results.pop(key))
            axes.update(self._suites.axes(key))
        results.update(logged_by_module(stage, trainer, self._logged))
        if results:
            step = trainer.global_step
            self.history.record(results, epoch=epoch, step=step, stage=stage, axes=axes)

    def _show(self, trainer: Trainer) -> None:
        if not trainer.is_global_zero:
            return
        if self._table is not None:
            self._table.show()
        if self._picture is not None and len(self.history):
            draw_history(self.history, self._picture)

    def _stop(self, reason: str, trainer: Trainer) -> None:
        if self.history.stop_reason is None:
            self.history.stop(reason)
        self._show(trainer)
