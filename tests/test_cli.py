"""What people type: both forms of an input, arrays of any kind, and mistakes in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dynmetrics.__main__ import main

# Two of three are right: rows of scores, and labels.
SCORES = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]])
LABELS = np.array([0, 1, 1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "scores.npy", SCORES)
    np.save(tmp_path / "labels.npy", LABELS)
    np.savez(tmp_path / "run.npz", scores=SCORES, labels=LABELS)
    np.save(tmp_path / "scalar.npy", np.array(1.0))
    np.save(tmp_path / "short.npy", LABELS[:2])
    np.save(tmp_path / "cube.npy", np.zeros((3, 2, 2, 2)))
    np.save(tmp_path / "names.npy", np.array(["a", "b", "c"]))
    np.save(tmp_path / "complex.npy", SCORES * 1j)
    np.save(tmp_path / "huge.npy", np.array([0, 1, 2**63], np.uint64))
    torch.save({"x": "text"}, tmp_path / "text.pt")
    (tmp_path / "empty.npy").touch()
    (tmp_path / "empty.npz").touch()
    (tmp_path / "folder.npy").mkdir()
    return tmp_path


def accuracy(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> float:
    filled = [argument.replace("{}", str(folder)) for argument in arguments]
    assert main(["score", "Accuracy", *filled]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    value: float = json.loads(captured.out)["value"]
    return value


@pytest.mark.parametrize(
    "arguments",
    [
        ["--preds={}/scores.npy", "--target={}/labels.npy"],
        ["--preds={}/run.npz:scores", "--target", "{}/run.npz:labels"],
        ["--preds", "{}/run.npz:scores", "--target={}/labels.npy", "--batch=2"],
        ["--option=top_k=1", "--preds={}/scores.npy", "--target={}/labels.npy", "--batch", "1"],
    ],
)
def test_both_forms_of_an_input(
    folder: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert accuracy(folder, capsys, *arguments) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("scores", "labels"),
    [(">f8", ">i8"), (">f4", ">i4"), (">f2", ">u2"), ("<f4", "u4"), ("g", "u8"), ("f8", "u1")],
)
def test_arrays_of_any_byte_order_and_width(
    folder: Path, scores: str, labels: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(folder / "x.npy", SCORES.astype(scores))
    np.savez(folder / "y.npz", y=LABELS.astype(labels))
    arguments = ["--preds", "{}/x.npy", "--target", "{}/y.npz"]
    assert accuracy(folder, capsys, *arguments) == pytest.approx(2 / 3)


def test_big_endian_masks_stay_masks(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(folder / "mask.npy", np.array([True, False, True]))
    arguments = ["--preds={}/scores.npy", "--target={}/labels.npy", "--mask={}/mask.npy"]
    assert accuracy(folder, capsys, *arguments) == 0.5


GOOD = ["--preds", "{}/scores.npy", "--target", "{}/labels.npy"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Accuracy", "--preds", "{}/scores.npy:scores"], "preds: expected a file without a key"),
        (["Accuracy", "--preds={}/scores.npy:", "--target={}/labels.npy"], "a file without a key"),
        (["Accuracy", "--preds=", "--target={}/labels.npy"], "inputs: expected --NAME FILE"),
        (["Accuracy", "--preds", "--target={}/labels.npy"], "inputs: expected --NAME FILE"),
        (["Accuracy", "{}/scores.npy", "{}/labels.npy"], "inputs: expected --NAME FILE"),
        (["Accuracy", "--preds={}/nothing.npy"], "file: expected a file that exists"),
        (["Accuracy", "--preds={}/nothing.npz:x"], "file: expected a file that exists"),
        (["Accuracy", "--preds={}/folder.npy"], "file: expected a file that exists"),
        (
            ["Accuracy", "--preds={}/empty.npy"],
            "path: expected a MATLAB, npy, npz, pt or HDF5 file",
        ),
        (
            ["Accuracy", "--preds={}/empty.npz"],
            "path: expected a MATLAB, npy, npz, pt or HDF5 file",
        ),
        (["Accuracy", "--preds={}/names.npy"], "preds: expected numbers, got <U1"),
        (["Accuracy", "--preds={}/complex.npy"], "array: expected real numbers, got complex128"),
        (["Accuracy", "--preds={}/scores.npy", "--target={}/huge.npy"], "integers below 2^63"),
        (["Accuracy", "--preds={}/text.pt", "--target={}/labels.npy"], "got none in"),
        (["Accuracy", "--preds={}/scalar.npy", "--target={}/labels.npy"], "preds: expected"),
        (["Accuracy", "--preds={}/cube.npy", "--target={}/labels.npy"], "preds: expected"),
        (["Accuracy", "--preds={}/scores.npy", "--target={}/short.npy"], "target: expected"),
        (["Accuracy", "--preds={}/scores.npy"], "inputs: expected"),
        (["Accuracy"], "inputs: expected"),
        (["Accuracy", *GOOD, "--weights={}/labels.npy"], "inputs: expected"),
        (["Accuracy", *GOOD, "--preds={}/scores.npy"], "inputs: expected every name once"),
        (["Accuracy", *GOOD, "--batch", "two"], "--batch: expected"),
        (["Accuracy", *GOOD, "--batch", "-1"], "--batch: expected"),
        (["Accuracy", *GOOD, "--option", "top_k=1", "--option", "top_k=2"], "every name once"),
        (["Accuracy", *GOOD, "--option", "empty_value=None"], "expected"),
        (["Accuracy", *GOOD, "--option", "nonsense=1"], "nonsense"),
        (["TemporalConfidence", *GOOD, "--option", "kinds=None"], "expected"),
        (["TemporalConfidence", *GOOD, "--option", "kinds=3"], "expected"),
        (["RSA", *GOOD], "--option: expected what RSA takes, got none"),
        (["Nothing", *GOOD], "metric: expected one of"),
    ],
)
def test_mistakes_end_in_one_line(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.replace("{}", str(folder)) for argument in arguments]
    assert main(["score", *filled]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dynmetrics score: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["list", "--long"], ["show", "Accuracy", "--all"]])
def test_surplus_arguments_are_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "arguments: expected none" in capsys.readouterr().err


def run(*arguments: str) -> Any:
    command = [sys.executable, "-m", "dynmetrics", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_no_traceback_in_a_real_process(folder: Path) -> None:
    done = run("score", "Accuracy", f"--preds={folder}/scores.npy:x")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert run("score").returncode == 2
    head = f"{sys.executable} -m dynmetrics list | true"
    done = subprocess.run(head, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert run().returncode == 2
