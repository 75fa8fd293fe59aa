"""Every Python block of the README runs, in order, as a reader would paste them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import dynmetrics
from dynmetrics import control, prediction, representation, retrieval, rsa, temporal, training

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
COMMANDS = re.findall(r"`make (\w+)`", README.read_text(encoding="utf-8"))


def test_there_is_something_to_run() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
@pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`")
@pytest.mark.filterwarnings("ignore:.*treespec.*")
def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "readme"}
    for i, block in enumerate(BLOCKS):
        exec(compile(block, f"README block {i}", "exec"), namespace)


def test_commands_exist() -> None:
    makefile = (README.parent / "Makefile").read_text()
    assert set(COMMANDS) >= {"demo", "test"}
    for command in set(COMMANDS):
        assert re.search(rf"^{command}:", makefile, re.MULTILINE), command


def test_every_metric_is_named() -> None:
    named = set(re.findall(r"`(\w+)`", README.read_text(encoding="utf-8")))
    metrics = {n for n, v in vars(dynmetrics).items() if isinstance(v, type)}
    assert metrics - named - {"MetricSuite", "StreamingMetric"} == set()


def test_the_table_for_those_who_come_from_elsewhere() -> None:
    """What stands in its last column is code that runs."""
    section = README.read_text(encoding="utf-8").partition("## Coming from another tool")[2]
    rows = [line.split("|") for line in section.partition("## ")[0].splitlines() if "|" in line]
    calls = [call for row in rows for call in re.findall(r"`(\w+\(.*?\))`", row[3])]
    assert len(calls) >= 15
    parts = (control, prediction, representation, retrieval, rsa, temporal, training, dynmetrics)
    names = {name: getattr(part, name) for part in parts for name in part.__all__}
    for call in calls:
        assert eval(call, {"torch": torch, **names}) is not None
