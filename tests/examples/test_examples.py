"""The examples run, on a few images; the plain loop and Lightning arrive at the same numbers."""

from __future__ import annotations

import csv
import importlib
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]
IMAGES, TRAIN, VALIDATION = 121, 80, 41
TINY = ["--epochs", "2", "--images", str(IMAGES), "--batch-size", "8"]
SECONDS = 300

Row = dict[str, str]


def command(script: str, folder: Path) -> list[str]:
    return [sys.executable, str(ROOT / "examples" / script), *TINY, "--folder", str(folder)]


def environment(**changes: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def output_of(script: str, folder: Path, *options: str) -> str:
    """What the script prints; nothing may go to stderr, where warnings go."""
    done = subprocess.run(
        [*command(script, folder), *options],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def rows(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class Run:
    """One finished run of a script."""

    def __init__(self, script: str, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.text = output_of(script, folder)
        self.history = rows(folder / "history.csv")
        self.curves = rows(folder / "curves.csv")

    def curve(self, name: str, epoch: int) -> list[float]:
        chosen = [r for r in self.curves if r["name"] == name and int(r["epoch"]) == epoch]
        return [float(row["value"]) for row in chosen]


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that both scripts use."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("recurrent_digits")


# ------------------------------------------------------------------------------------ the scripts


def test_the_plain_loop_gives_the_numbers_of_lightning(tmp_path: Path) -> None:
    # One test, so that each script has to run once only, however tests are dealt to workers.
    plain = Run("plain_loop.py", tmp_path / "plain")
    lightning = Run("train_recurrent_digits.py", tmp_path / "lightning")
    check_equal(plain, lightning)
    check_comparison(lightning)
    check_logger(lightning)
    for run in (plain, lightning):
        check_table(run)
        check_counts(run)
        check_training(run)
        assert (run.folder / "accuracy_over_time.png").read_bytes().startswith(b"\x89PNG")


def check_equal(plain: Run, lightning: Run) -> None:
    assert len(plain.history) == len(lightning.history) == 3
    for ours, theirs in zip(plain.history, lightning.history, strict=True):
        assert set(theirs) - set(ours) == {"val_self_log"}
        for name, text in ours.items():
            assert bool(text) == bool(theirs[name])
            if text:
                assert float(text) == pytest.approx(float(theirs[name]), abs=1e-6), name
    for name in ("val_accuracy_top1", "val_memory_low", "val_accuracy_valid"):
        expected = lightning.curve(name, epoch=2)
        assert len(expected) == 14
        assert plain.curve(name, epoch=2) == pytest.approx(expected, abs=1e-6, nan_ok=True)
    assert plain.text.splitlines()[:5] == lightning.text.splitlines()[:5]


def check_comparison(lightning: Run) -> None:
    """Lightning's own mean stands beside the exact value of the same run."""
    last = lightning.history[-1]
    naive, exact = float(last["val_self_log"]), float(last["val_accuracy"])
    assert naive != exact
    assert f"self.log of batches {naive:.4f}, off by {naive - exact:+.4f}" in lightning.text


def check_logger(lightning: Run) -> None:
    logged = rows(lightning.folder / "lightning" / "metrics.csv")
    accuracy = [float(row["val_accuracy"]) for row in logged if row["val_accuracy"]]
    expected = [float(row["val_accuracy"]) for row in lightning.history[1:]]
    assert accuracy == pytest.approx(expected, abs=1e-6)


def check_table(run: Run) -> None:
    """A row before training, a row for each epoch, and the reason to stop."""
    lines = run.text.splitlines()
    assert lines[0].split()[:4] == ["step", "epoch", "train_loss", "val_accuracy"]
    assert [line.split()[:2] for line in lines[1:4]] == [["0", "0"], ["5", "1"], ["10", "2"]]
    assert lines[4] == "Stopped: max_epochs=2 completed"


def check_counts(run: Run) -> None:
    """Every image counts once; labels wait for the signal and the reaction."""
    brief, medium, long = 14, 14, 13
    labels = [0] * 4 + [brief + medium + long] + [medium + long] * 3 + [long] * 3 + [0] * 3
    for epoch in range(3):
        assert run.curve("val_memory_valid", epoch) == [VALIDATION] * 14
        assert run.curve("val_accuracy_valid", epoch) == labels


def check_training(run: Run) -> None:
    before, first, second = run.history
    assert before["train_loss"] == ""
    assert float(second["train_loss"]) < float(first["train_loss"])
    assert before["val_memory"] != second["val_memory"]


def test_a_terminal_gets_a_live_table(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command("plain_loop.py", tmp_path),
        env=environment(TERM="xterm", COLUMNS="120", LINES="40"),
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    shown = b""
    try:
        while part := os.read(master, 4096):
            shown += part
    except OSError:  # how a terminal says that the other side has gone
        pass
    os.close(master)
    assert process.wait(SECONDS) == 0
    text = shown.decode()
    assert "val_accuracy_overall_top3" in text
    assert "training" in text
    assert "100%" in text
    assert "Stopped: max_epochs=2 completed" in text


def test_without_lightning_the_error_names_the_extra() -> None:
    script = str(ROOT / "examples" / "train_recurrent_digits.py")
    hidden = (
        f"import sys; sys.modules['lightning'] = None; sys.path[0] = {str(ROOT / 'examples')!r}"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{hidden}; import runpy; runpy.run_path({script!r})"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 1
    assert "pip install 'dynmetrics[lightning]'" in done.stderr


# -------------------------------------------------------------------------------- data and network


def test_the_signal_needs_the_residual_steps(shared: Any) -> None:
    network, _ = shared.make_model()
    frames = torch.rand(2, 6, 1, 8, 8)
    with torch.no_grad():
        difference = (network(frames) - network(torch.zeros_like(frames))).abs().amax((0, 2))
    assert difference[: shared.N_RESIDUAL].tolist() == [0.0] * shared.N_RESIDUAL
    assert (difference[shared.N_RESIDUAL :] > 0).all()


def test_ranks_share_the_images(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *TINY])
    options = shared.parse_options("", "")
    loaders = [shared.make_loaders(options, rank) for rank in range(shared.RANKS)]
    train, val = ([share[i] for share in loaders] for i in range(2))
    items = [set(loader.sampler) for loader in train]
    assert [len(own) for own in items] == [TRAIN // 2, TRAIN // 2]
    assert not set.intersection(*items)
    assert [len(loader.dataset) for loader in val] == [21, 20]
    assert sorted(i for loader in val for i in loader.dataset.indices) == list(range(VALIDATION))


def test_an_image_is_shown_then_blank(shared: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "NOISE", 0.0)
    frames, labels = shared.present(torch.ones(3, 1, 8, 8), torch.tensor([7, 8, 9])).tensors
    assert frames.flatten(2).amax(2).sum(1).tolist() == [3, 6, 9]
    assert (labels >= 0).sum(1).tolist() == [1, 4, 7]
    assert labels[1].tolist() == [-1] * 4 + [8] * 4 + [-1] * 6
