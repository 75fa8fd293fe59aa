"""The comparison of two policies runs, and says what the counts say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.test_examples import ROOT, environment


def test_two_policies(tmp_path: Path) -> None:
    pytest.importorskip("torch_world", reason="needs torch-world: pip install 'dynmetrics[dev]'")
    script = ROOT / "examples" / "compare_policies.py"
    done = subprocess.run(
        [sys.executable, str(script), "--episodes", "60", "--batch", "30", "--folder", tmp_path],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "per task" in done.stdout
    assert "direct is a" in done.stdout
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {f"{k}_{p}.png" for k in ("success", "survival") for p in ("direct", "timid")}
