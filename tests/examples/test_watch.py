"""The examples that watch a network run, and report what they measure."""

from __future__ import annotations

from pathlib import Path

from tests.examples.test_examples import output_of, rows


def test_dynamics(tmp_path: Path) -> None:
    text = output_of("watch_dynamics.py", tmp_path)
    assert "accuracy 0." in text
    names = {"accuracy.png", "confidence.png", "response.png", "latency.png"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_representation(tmp_path: Path) -> None:
    text = output_of("watch_representation.py", tmp_path, "--images", "480")
    assert "Stopped: max_epochs=2 completed" in text
    table = rows(tmp_path / "representation.csv")
    assert [row["epoch"] for row in table] == ["0", "1", "2"]
    assert all(1 <= float(row["val_health"]) <= 32 for row in table)
    assert all(0 <= float(row["val_neighbours"]) <= 1 for row in table)
