"""Runs the benchmarks, all or those named, and prints one table; also as JSON.

python -m tests.benchmarks [--json FILE] [name ...]
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import platform
from dataclasses import asdict
from pathlib import Path

import torch
import torchmetrics
from rich.console import Console
from rich.table import Table

import tests.benchmarks
from tests.benchmarks.measuring import Row

SUFFIX = "_speed"


def main() -> None:
    """Measure, print, and write."""
    names = [module.name for module in pkgutil.iter_modules(tests.benchmarks.__path__)]
    known = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*known, []], default=known)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name in arguments.names or known:
        rows += importlib.import_module(f"tests.benchmarks.{name}{SUFFIX}").run()
    versions = f"torch {torch.__version__}, torchmetrics {torchmetrics.__version__}"
    machine = f"{platform.machine()}, one thread, Python {platform.python_version()}, {versions}"
    Console().print(table_of(rows, f"Times faster than the peer ({machine})"))
    if arguments.json:
        report = {"machine": machine, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(report, indent=1))


def table_of(rows: list[Row], title: str) -> Table:
    """The rows for a terminal."""
    table = Table(title=title)
    for heading in ("what", "peer", "ours ms", "peer ms", "ratio", "quartiles", "goal"):
        table.add_column(heading, justify="left" if heading in ("what", "peer") else "right")
    for row in rows:
        times = (f"{row.ours_ms:.3g}", f"{row.peer_ms:.3g}", f"{row.ratio:.2f}")
        table.add_row(row.name, row.peer, *times, f"{row.low:.2f} - {row.high:.2f}", row.goal)
    return table


if __name__ == "__main__":
    main()
