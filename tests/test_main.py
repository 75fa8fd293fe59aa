"""The command line: listing, showing, and scoring what other programs saved."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from scipy.io import savemat

from dynmetrics.__main__ import main, metric_classes
from dynmetrics.temporal import temporal_accuracy


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dynmetrics", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(50, 4, 6)), rng.integers(-1, 6, (50, 4))
    np.savez(tmp_path / "run.npz", logits=scores, labels=labels)
    np.save(tmp_path / "logits.npy", scores)
    torch.save({"logits": torch.tensor(scores)}, tmp_path / "run.pt")
    savemat(tmp_path / "old.mat", {"logits": scores})
    with h5py.File(tmp_path / "new.mat", "w") as file:
        file["logits"] = scores.T
        file["logits"].attrs["MATLAB_class"] = np.bytes_("double")
    with h5py.File(tmp_path / "run.h5", "w") as file:
        file["logits"] = scores
    expected = temporal_accuracy(torch.tensor(scores), torch.tensor(labels), top_k=(1, 5))
    return {"folder": tmp_path, "expected": expected}


def test_every_metric_is_listed_and_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == sorted(metric_classes())
    assert all(len(line.split(maxsplit=1)[1]) > 20 for line in printed)
    for name in metric_classes():
        assert main(["show", name]) == 0
    assert "TemporalAccuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    "source",
    [
        "run.npz:logits",
        "logits.npy",
        "run.pt",
        "run.pt:logits",
        "old.mat",
        "new.mat",
        "run.h5:logits",
    ],
)
def test_scores_of_saved_arrays(
    files: dict[str, Any], source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files["folder"]
    arguments = ["--preds", f"{folder}/{source}", "--target", f"{folder}/run.npz:labels"]
    assert (
        main(["score", "TemporalAccuracy", *arguments, "--option", "top_k=1,5", "--batch", "7"])
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert result["overall_top5"] == float(files["expected"]["overall_top5"])
    assert result["top1"] == files["expected"]["top1"].tolist()


def test_undefined_is_null_in_a_real_process(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 4)))
    np.save(tmp_path / "y.npy", np.array([[-1, 0, 1], [-1, 0, 1]]))
    done = run(
        "score", "TemporalAccuracy", "--preds", f"{tmp_path}/x.npy", "--target", f"{tmp_path}/y.npy"
    )
    assert json.loads(done.stdout)["accuracy"] == [None, 1.0, 0.0]
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "Nothing"], "metric: expected one of Accuracy"),
        (["score", "Accuracy", "--preds"], "inputs: expected --NAME FILE"),
        (["score", "Accuracy", "--preds", "missing.npy"], "a file that exists"),
        (["score", "Accuracy", "--preds", "file.txt"], "expected one of .npy"),
        (["score", "Accuracy", "--preds", "{}/run.npz"], "a key among"),
        (["score", "Accuracy", "--preds", "{}/run.npz:none"], "a key among"),
        (["score", "Accuracy", "--option", "top_k"], "--option: expected NAME=VALUE"),
        (["score", "Accuracy", "--option", "top_k=0"], "top_k: expected"),
        (["score", "Accuracy", "--predz", "{}/logits.npy"], "predz"),
        (["score", "Accuracy", "--preds", "{}/logits.npy", "--batch", "0"], "--batch"),
    ],
)
def test_misuse_ends_in_one_line(
    files: dict[str, Any], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filled = [argument.replace("{}", str(files["folder"])) for argument in arguments]
    assert main(filled) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_pickles_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "executed",))

    trap = np.array([Trap()], dtype=object)
    np.save(tmp_path / "trap.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "trap.npz", x=trap)
    torch.save({"x": Trap()}, tmp_path / "trap.pt")
    for name in ("trap.npy", "trap.npz", "trap.pt"):
        assert main(["score", "Accuracy", "--preds", f"{tmp_path}/{name}"]) == 2
    (tmp_path / "cut.npz").write_bytes((tmp_path / "trap.npz").read_bytes()[:60])
    assert main(["score", "Accuracy", "--preds", f"{tmp_path}/cut.npz"]) == 2
    assert not (tmp_path / "executed").exists()
    capsys.readouterr()
