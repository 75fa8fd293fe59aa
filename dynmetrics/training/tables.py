"""A history as rows: aligned text, a rich table, CSV, npz, pandas."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynmetrics.core.checks import check_choice
from dynmetrics.core.optional import optional

if TYPE_CHECKING:
    from dynmetrics.training.history import History, Value

FORMS = ("wide", "long")
Row = dict[str, Any]


def wide_rows(history: History) -> list[Row]:
    """A row for each epoch and step with the scalars of all stages; a blank is None."""
    rows: dict[tuple[int, int], Row] = {}
    for record in history:
        if record.stage == "batch":
            continue
        key = (record.step, record.epoch)
        row = rows.setdefault(key, {"step": record.step, "epoch": record.epoch})
        row.update({n: v for n, v in record.results.items() if not isinstance(v, list)})
    names = history.scalars()
    return [
        {"step": row["step"], "epoch": row["epoch"], **{name: row.get(name) for name in names}}
        for row in rows.values()
    ]


def long_rows(history: History) -> list[Row]:
    """A row for each number: its stage, name, and for a curve its axis and place on it."""
    rows: list[Row] = []
    for record in history:
        head = {"step": record.step, "epoch": record.epoch, "stage": record.stage}
        for name, value in record.results.items():
            axis = record.axes.get(name, "i") if isinstance(value, list) else ""
            rows += [
                {**head, "name": name, "axis": axis, "index": place, "value": number}
                for place, number in _numbers(value)
            ]
    return rows


def _numbers(value: Value, place: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a result with their places, such as "3" or "3,1"."""
    if not isinstance(value, list):
        yield place, value
        return
    for i, part in enumerate(value):
        yield from _numbers(part, f"{place},{i}" if place else str(i))


def _rows(history: History, form: str) -> list[Row]:
    check_choice("form", form, FORMS)
    return wide_rows(history) if form == "wide" else long_rows(history)


def write_csv(history: History, path: Path, form: str) -> None:
    """Write the rows with a header; blanks where nothing was evaluated."""
    rows = _rows(history, form)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["step", "epoch"])
        writer.writeheader()
        writer.writerows(rows)


def data_frame(history: History, form: str) -> Any:
    """The rows as a pandas DataFrame."""
    pandas = optional("pandas", "table")
    return pandas.DataFrame(_rows(history, form))


def write_npz(history: History, path: Path) -> None:
    """Write `{stage}/epoch`, `{stage}/step` and `{stage}/{name}`, padded with NaN."""
    import numpy as np

    arrays: dict[str, Any] = {}
    for stage in dict.fromkeys(record.stage for record in history):
        records = [record for record in history if record.stage == stage]
        arrays[f"{stage}/epoch"] = np.array([record.epoch for record in records])
        arrays[f"{stage}/step"] = np.array([record.step for record in records])
        for name in dict.fromkeys(name for record in records for name in record.results):
            values = [np.array(record.results.get(name, np.nan)) for record in records]
            arrays[f"{stage}/{name}"] = _stacked(values)
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)


def _stacked(values: Sequence[Any]) -> Any:
    import numpy as np

    axes = max(value.ndim for value in values)
    values = [value.reshape((1,) * (axes - value.ndim) + value.shape) for value in values]
    shape = [max(value.shape[axis] for value in values) for axis in range(axes)]
    stacked = np.full([len(values), *shape], np.nan)
    for i, value in enumerate(values):
        corner: tuple[Any, ...] = (i, *map(slice, value.shape))
        stacked[corner] = value
    return stacked


# ------------------------------------------------------------------------------------ for people


def text_table(history: History, names: Sequence[str] | None = None) -> str:
    """Aligned columns, and the stop reason below."""
    columns = ["step", "epoch", *(history.scalars() if names is None else names)]
    cells = [[text_cell(row.get(column)) for column in columns] for row in wide_rows(history)]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines = [text_line(row, widths) for row in [columns, *cells]]
    if history.stop_reason is not None:
        lines.append(f"Stopped: {history.stop_reason}")
    return "\n".join(lines)


def text_line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One row, right-aligned."""
    padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip()


class RunningTable:
    """Prints the rows of a history as they come, the header again when columns join."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._shown: set[tuple[int, int]] = set()
        self._columns: list[str] = []
        self._stop_reason: str | None = None

    def show(self) -> None:
        """Print what is new."""
        rows = [row for row in wide_rows(self.history) if _key(row) not in self._shown]
        columns = ["step", "epoch", *self.history.scalars()]
        widths = [max(8, len(column)) for column in columns]
        if rows and columns != self._columns:
            print(text_line(columns, widths))
        for row in rows:
            print(text_line([text_cell(row[column]) for column in columns], widths), flush=True)
            self._shown.add(_key(row))
        self._columns = columns
        if self.history.stop_reason != self._stop_reason:
            self._stop_reason = self.history.stop_reason
            if self._stop_reason is not None:
                print(f"Stopped: {self._stop_reason}", flush=True)


def _key(row: Row) -> tuple[int, int]:
    return row["step"], row["epoch"]


def text_cell(value: Any) -> str:
    """A number as it is printed: counts whole, others with four digits, blanks empty."""
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value) and value == int(value) and abs(value) > 1:
        return str(int(value))
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.4g}"


def rich_table(history: History, names: Sequence[str] | None = None) -> Any:
    """The table for a terminal."""
    table = optional("rich.table", "table").Table(caption=_caption(history))
    columns = ["step", "epoch", *(history.scalars() if names is None else names)]
    for column in columns:
        table.add_column(column, justify="right")
    for row in wide_rows(history):
        table.add_row(*[text_cell(row.get(column)) for column in columns])
    return table


def _caption(history: History) -> str | None:
    return None if history.stop_reason is None else f"Stopped: {history.stop_reason}"
