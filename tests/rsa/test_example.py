"""The example runs, with and without a brain."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

ROOT = Path(__file__).parents[2]


def output_of(folder: Path, *options: str) -> str:
    command = [sys.executable, str(ROOT / "examples" / "rsa_brain.py"), "--epochs", "1"]
    done = subprocess.run(
        [*command, "--images", "121", "--folder", str(folder), *options],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for name in ("layers_by_targets", "model_by_brain_time"):
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    return done.stdout


def test_without_a_brain(tmp_path: Path) -> None:
    text = output_of(tmp_path)
    assert text.split()[:5] == ["epoch", "layer", "pixels", "categories", "one"]
    assert sum(line.startswith("    1  ") for line in text.splitlines()) == 4


def test_with_a_brain(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.random((12, 20, 20, 3))
    features = images.reshape(12, -1) @ rng.random((1200, 5))
    signal = np.abs(features[:, None] - features).sum(-1)
    noise = rng.random((4, 12, 12))
    brain = signal + noise + noise.transpose(0, 2, 1)
    path = tmp_path / "brain.npz"
    np.savez(path, images=images, IT_RDMs=brain, EVC_RDMs=brain[:, ::-1, ::-1])
    text = output_of(tmp_path, "--brain", str(path), "--key", "EVC_RDMs", "IT_RDMs")
    assert text.split()[:4] == ["epoch", "layer", "EVC_RDMs", "IT_RDMs"]
