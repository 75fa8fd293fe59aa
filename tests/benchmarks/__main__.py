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
from tests.benchmarks import growth
from tests.benchmarks.growth import Growth
from tests.benchmarks.measuring import Row

SUFFIX = "_speed"
GROWTH = "growth"


def main() -> None:
    """Measure, print, and write."""
    names = [module.name for module in pkgutil.iter_modules(tests.benchmarks.__path__)]
    known = [*(name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)), GROWTH]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*known, []], default=known)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = arguments.names or known
    rows: list[Row] = []
    for name in chosen:
        if name != GROWTH:
            rows += importlib.import_module(f"tests.benchmarks.{name}{SUFFIX}").run()
    curves = growth.run() if GROWTH in chosen else []
    versions = f"torch {torch.__version__}, torchmetrics {torchmetrics.__version__}"
    machine = f"{platform.machine()}, one thread, Python {platform.python_version()}, {versions}"
    if rows:
        Console().print(table_of(rows, f"Times faster than the peer ({machine})"))
    if curves:
        Console().print(growth_table(curves, f"Growth ({machine})"))
    if arguments.json:
        report = {
            "machine": machine,
            "rows": [asdict(row) for row in rows],
            "growth": [asdict(curve) for curve in curves],
        }
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


def growth_table(curves: list[Growth], title: str) -> Table:
    """The curves for a terminal: their two ends and the exponents."""
    table = Table(title=title)
    for heading in (
        "what",
        "over",
        "ms",
        "exponent",
        "state KB",
        "exponent",
        "peak KB",
        "exponent",
    ):
        table.add_column(heading, justify="left" if heading in ("what", "over") else "right")
    for curve in curves:
        cells = [curve.name, f"{curve.axis} {curve.sizes[0]} - {curve.sizes[-1]}"]
        kilobytes = ([n / 1e3 for n in values] for values in (curve.state_bytes, curve.peak_bytes))
        for values in (curve.ms, *kilobytes):
            cells += [f"{values[0]:.3g} - {values[-1]:.3g}", f"{curve.exponent(values):.2f}"]
        table.add_row(*cells)
    return table


if __name__ == "__main__":
    main()
