"""History: what is recorded is on disk, loads again, and reads as tables."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

from dynmetrics.training import History


def filled(path: Path | None = None) -> History:
    history = History(path, directions={"val_accuracy": True, "val_loss": False})
    history.record({"val_accuracy": 0.1, "val_loss": 2.5}, epoch=0, step=0)
    for epoch, accuracy in ((1, 0.5), (2, 0.75), (3, float("nan"))):
        history.record({"train_loss": 1.0 / epoch}, epoch=epoch, step=10 * epoch - 5, stage="batch")
        curve = torch.tensor([0.25] * epoch)
        history.record(
            {"val_accuracy": torch.tensor(accuracy), "val_loss": 1.0 / epoch, "val_curve": curve},
            epoch=epoch, step=10 * epoch, axes={"val_curve": ("T",)},
        )  # fmt: skip
        if epoch < 3:
            history.record({"train_accuracy": 0.8}, epoch=epoch, step=10 * epoch, stage="train")
    history.stop("max_epochs=3 completed")
    return history


TABLE = """\
step  epoch  val_accuracy  val_loss  train_accuracy
   0      0        0.1000    2.5000
  10      1        0.5000    1.0000          0.8000
  20      2        0.7500    0.5000          0.8000
  30      3           nan    0.3333
Stopped: max_epochs=3 completed"""


def test_table_with_row_0_blanks_and_reason() -> None:
    assert filled().table() == TABLE
    assert filled().table(["val_loss"]).splitlines()[1].split() == ["0", "0", "2.5000"]


def test_everything_is_on_disk_and_loads_again(tmp_path: Path) -> None:
    history = filled(tmp_path / "deep" / "history.jsonl")
    loaded = History.load(tmp_path / "deep" / "history.jsonl")
    assert loaded.table() == history.table() == TABLE
    assert loaded.directions == history.directions
    assert loaded.records[2].results["val_curve"] == [0.25]
    assert loaded.best("val_accuracy").epoch == 2
    assert loaded.best("val_loss").epoch == 3


def test_a_crash_loses_at_most_the_line_being_written(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    filled(path)
    whole = path.read_bytes()
    lines = whole.count(b"\n")
    for size in range(len(whole) - 40, len(whole)):
        path.write_bytes(whole[:size])
        assert len(History.load(path)) in (8, 9)
    path.write_bytes(whole[:-20])
    continued = History(path)
    continued.record({"val_accuracy": 0.9}, epoch=4, step=40)
    again = History.load(path)
    assert again.best("val_accuracy").epoch == 4
    assert path.read_bytes().count(b"\n") == lines


def test_wide_and_long_files(tmp_path: Path) -> None:
    history = filled()
    history.to_csv(tmp_path / "wide.csv")
    with (tmp_path / "wide.csv").open() as file:
        wide = list(csv.DictReader(file))
    assert [row["train_accuracy"] for row in wide] == ["", "0.8", "0.8", ""]
    history.to_csv(tmp_path / "long.csv", form="long")
    with (tmp_path / "long.csv").open() as file:
        long = [row for row in csv.DictReader(file) if row["name"] == "val_curve"]
    assert [(row["epoch"], row["axis"], row["index"]) for row in long] == [
        ("1", "t", "0"), ("2", "t", "0"), ("2", "t", "1"),
        ("3", "t", "0"), ("3", "t", "1"), ("3", "t", "2"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="form: expected"):
        history.to_csv(tmp_path / "no.csv", form="tall")


def test_arrays_pad_curves_that_grow(tmp_path: Path) -> None:
    filled().to_npz(tmp_path / "history.npz")
    with np.load(tmp_path / "history.npz") as arrays:
        assert arrays["val/epoch"].tolist() == [0, 1, 2, 3]
        assert arrays["val/val_curve"].shape == (4, 3)
        assert np.isnan(arrays["val/val_curve"]).sum(1).tolist() == [3, 2, 1, 0]


def test_pandas() -> None:
    frame = filled().to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["val_loss"].tolist()[:2] == [2.5, 1.0]
    assert len(filled().to_pandas("long")) == 2 + 3 + 3 * 2 + 6 + 2


def test_rewinding_forgets_in_memory_and_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = filled(path)
    history.rewind(3)
    assert len(history) == len(History.load(path)) == 3
    history.record({"val_accuracy": 0.6}, epoch=1)
    loaded = History.load(path)
    assert len(loaded) == 4
    assert loaded.stop_reason is None
    assert loaded.directions == history.directions


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    for text in ("", "hello\n", "[]\n", '{"format": "other"}\n', "\x00\xff\n"):
        path = tmp_path / "file"
        path.write_text(text)
        if text:
            with pytest.raises(ValueError, match="path: expected a file written by History"):
                History.load(path)
    with pytest.raises(ValueError, match="path: expected"):
        History.load(tmp_path / "missing")
    history = filled()
    for name, message in (("nothing", "one of"), ("train_accuracy", "direction")):
        with pytest.raises(ValueError, match=message):
            history.best(name)
    with pytest.raises(ValueError, match="real numbers"):
        history.record({"z": torch.tensor(1j)}, epoch=1)
