"""One callback in several fits, tests and failures: nothing collides, nothing is carried over."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

from dynmetrics.training import History, MetricsCallback
from tests.training.toy import Scaling, Scores, loader, suite, trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*have no `val_dataloader`",
    "ignore:Checkpoint directory .* exists",
    "ignore:.*treespec.*:FutureWarning",
    "ignore:.*isinstance.*LeafSpec.*",
)

TRAIN, ONE, OTHER = Scores(8, 3, 0), Scores(7, 3, 1), Scores(6, 3, 2)


def quiet(**options: Any) -> MetricsCallback:
    return MetricsCallback(suite(), figures=False, verbose=False, **options)


def places(history: History, stage: str) -> list[tuple[int, int, int]]:
    return [(r.run, r.step, r.epoch) for r in history if r.stage == stage]


def test_a_second_fit_is_a_run_of_its_own(tmp_path: Path) -> None:
    callback = quiet(history=tmp_path / "h.jsonl")
    for data in (ONE, OTHER):
        trainer(tmp_path, callbacks=[callback]).fit(Scaling(), loader(TRAIN), loader(data))
    history = History.load(tmp_path / "h.jsonl")
    assert places(history, "val") == [(1, 2, 1), (1, 4, 2), (2, 2, 1), (2, 4, 2)]
    values = [r.results["val_accuracy"] for r in history if r.stage == "val"]
    first, second = ONE.accuracy()[0], OTHER.accuracy()[0]
    assert values == pytest.approx([first, first, second, second], abs=1e-12)
    rows = [line.split() for line in history.table(["val_accuracy"]).splitlines()]
    assert rows[0] == ["run", "step", "epoch", "val_accuracy"]
    assert [row[:3] for row in rows[1:5]] == [
        ["1", "2", "1"], ["1", "4", "2"], ["2", "2", "1"], ["2", "4", "2"]
    ]  # fmt: skip
    assert [row[3] for row in rows[1:5]] == [f"{value:.4f}" for value in values]
    batches = places(history, "batch")
    assert batches == [(run, step, (step + 1) // 2) for run in (1, 2) for step in (1, 2, 3, 4)]
    history.to_npz(tmp_path / "h.npz")
    with np.load(tmp_path / "h.npz") as arrays:
        assert arrays["val/run"].tolist() == [1, 1, 2, 2]
    assert "run" in history.to_pandas().columns
    metrics = history.plot().axes[1]
    assert [list(line.get_xdata()) for line in metrics.lines] == [[2, 4], [2, 4]]


def test_a_fit_in_another_process_is_a_run_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        callback = quiet(history=tmp_path / "h.jsonl")
        trainer(tmp_path, max_epochs=1, callbacks=[callback]).fit(
            Scaling(), loader(TRAIN), loader(ONE)
        )
    assert places(History.load(tmp_path / "h.jsonl"), "val") == [(1, 2, 1), (2, 2, 1)]


def test_every_row_of_a_second_fit_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    callback = MetricsCallback(suite(), figures=False)
    for _ in range(2):
        trainer(tmp_path, callbacks=[callback]).fit(Scaling(), loader(TRAIN), loader(ONE))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    numbers = [line for line in lines if line and line[0].isdigit()]
    assert [line[:2] for line in numbers[:2]] == [["2", "1"], ["4", "2"]]
    assert [line[:3] for line in numbers[2:]] == [["2", "2", "1"], ["2", "4", "2"]]
    assert sum(line[:1] == ["Stopped:"] for line in lines) == 2


def test_the_same_trainer_goes_on_with_its_run(tmp_path: Path) -> None:
    callback = quiet()
    run = trainer(tmp_path, max_epochs=1, callbacks=[callback])
    model = Scaling()
    run.fit(model, loader(TRAIN), loader(ONE))
    run.fit_loop.max_epochs = 2
    run.fit(model, loader(TRAIN), loader(ONE))
    assert places(callback.history, "val") == [(1, 2, 1), (1, 4, 2)]
    assert callback.history.stop_reason == "max_epochs=2 completed"


def test_a_resumed_run_goes_on_and_later_runs_stay(tmp_path: Path) -> None:
    """Two epochs, another run, then the first again from its first epoch's checkpoint."""
    path = tmp_path / "h.jsonl"
    callback = quiet(history=path)
    keeper = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    trainer(tmp_path, enable_checkpointing=True, callbacks=[callback, keeper]).fit(
        Scaling(), loader(TRAIN), loader(ONE)
    )
    trainer(tmp_path, max_epochs=1, callbacks=[callback]).fit(
        Scaling(), loader(TRAIN), loader(OTHER)
    )
    keeper = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    trainer(tmp_path, max_epochs=3, enable_checkpointing=True, callbacks=[callback, keeper]).fit(
        Scaling(), loader(TRAIN), loader(ONE), ckpt_path=tmp_path / "epoch=0.ckpt"
    )
    expected = [(1, 2, 1), (2, 2, 1), (1, 4, 2), (1, 6, 3)]
    assert places(callback.history, "val") == expected
    assert places(History.load(path), "val") == expected
    trainer(tmp_path, max_epochs=1, callbacks=[callback]).fit(Scaling(), loader(TRAIN), loader(ONE))
    assert places(History.load(path), "val") == [*expected, (3, 2, 1)]


def test_two_tests_after_a_fit_have_a_row_each(tmp_path: Path) -> None:
    callback = quiet()
    run = trainer(tmp_path, max_epochs=1, callbacks=[callback])
    run.fit(Scaling(), loader(TRAIN), loader(ONE))
    for data in (ONE, OTHER):
        run.test(Scaling(), loader(data), verbose=False)
    column = callback.history.to_pandas()["test_accuracy"].dropna().tolist()
    assert column == pytest.approx([ONE.accuracy()[0], OTHER.accuracy()[0]], abs=1e-12)


class Unlucky(Scaling):
    """Raises in the second batch of a stage, as long as it is told to."""

    unlucky = ""
    error: type[BaseException] = RuntimeError

    def _at(self, stage: str, batch_idx: int) -> None:
        if self.unlucky == stage and batch_idx == 1:
            raise self.error("out of luck")

    def test_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> dict[str, Any]:
        self._at("test", batch_idx)
        return super().test_step(batch, batch_idx)

    def validation_step(
        self, batch: dict[str, torch.Tensor], batch_idx: int, dataloader_idx: int = 0
    ) -> dict[str, Any]:
        self._at("val", batch_idx)
        return super().validation_step(batch, batch_idx, dataloader_idx)


@pytest.mark.parametrize("stage", ["test", "val"])
def test_a_stage_starts_afresh_after_an_error(tmp_path: Path, stage: str) -> None:
    """The first batch of the stage that failed must not count in the next one."""
    callback = quiet()
    run = trainer(tmp_path, callbacks=[callback])
    call = run.test if stage == "test" else run.validate
    model = Unlucky()
    model.unlucky = stage
    with pytest.raises(RuntimeError, match="out of luck"):
        call(model, loader(ONE), verbose=False)
    model.unlucky = ""
    call(model, loader(OTHER), verbose=False)
    [record] = [record for record in callback.history if record.stage == stage]
    assert record.results[f"{stage}_accuracy"] == pytest.approx(OTHER.accuracy()[0], abs=1e-12)
    valid = [int((OTHER.labels[:, t] >= 0).sum()) for t in range(3)]
    assert record.results[f"{stage}_accuracy_valid"] == valid


def test_an_error_in_a_test_records_no_training_again(tmp_path: Path) -> None:
    """What was gathered of a broken training epoch is in the history once."""
    callback = quiet()
    model = Unlucky(fail_at=1)
    run = trainer(tmp_path, callbacks=[callback])
    with pytest.raises(RuntimeError, match="out of luck"):
        run.fit(model, loader(TRAIN), loader(ONE))
    model.unlucky = "test"
    with pytest.raises(RuntimeError, match="out of luck"):
        run.test(model, loader(ONE), verbose=False)
    [record] = [record for record in callback.history if record.stage == "train"]
    assert record.results["train_accuracy"] == pytest.approx(TRAIN.accuracy(stop=4)[0], abs=1e-12)
    model.fail_at, model.unlucky = None, "val"
    again = trainer(tmp_path, callbacks=[callback], num_sanity_val_steps=2)
    with pytest.raises(RuntimeError, match="out of luck"):
        again.fit(model, loader(TRAIN), loader(ONE))
    assert len([record for record in callback.history if record.stage == "train"]) == 1


@pytest.fixture
def interrupts() -> Iterator[None]:
    """Lightning ignores Ctrl+C once it was pressed; afterwards it works again."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupted_fit_keeps_what_was_gathered(tmp_path: Path) -> None:
    callback = quiet(history=tmp_path / "h.jsonl")
    model = Unlucky()
    model.unlucky, model.error = "val", KeyboardInterrupt
    with pytest.raises(SystemExit):
        trainer(tmp_path, callbacks=[callback], num_sanity_val_steps=0).fit(
            model, loader(TRAIN), loader(ONE)
        )
    history = History.load(tmp_path / "h.jsonl")
    assert history.stop_reason == "KeyboardInterrupt: out of luck"
    [record] = [record for record in history if record.stage == "train"]
    assert record.results["train_accuracy"] == pytest.approx(TRAIN.accuracy()[0], abs=1e-12)
