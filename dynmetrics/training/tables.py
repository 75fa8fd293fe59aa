"""A history as rows: aligned text, a rich table, CSV, npz, pandas."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dynmetrics.core.checks import check_choice, describe, refuse
from dynmetrics.core.optional import optional
from dynmetrics.training.records import BATCH

if TYPE_CHECKING:
    from dynmetrics.training.history import History, Value

FORMS = ("wide", "long")
Row = dict[str, Any]


def wide_rows(history: History) -> list[Row]:
    """A row for each run, step and epoch with the scalars of all stages; a blank is None.

    What was measured a second time at one point, a test on other data say, has a row of its own.
    """
    rows: list[Row] = []
    newest: dict[tuple[int, int, int], Row] = {}
    for record in history:
        if record.stage == BATCH:
            continue
        results = record.results.items()
        scalars = {n: v for n, v in results if not isinstance(v, list) and n not in _PLACE}
        key = (record.run, record.step, record.epoch)
        row = newest.get(key)
        if row is None or scalars.keys() & row.keys():
            row = newest[key] = dict(zip(_PLACE, key, strict=True))
            rows.append(row)
        row.update(scalars)
    columns = [*place_columns(history), *history.scalars()]
    return [{column: row.get(column) for column in columns} for row in rows]


_PLACE = ("run", "step", "epoch")


def place_columns(history: History) -> list[str]:
    """The columns that say where a row belongs; the run only where there are several."""
    several = len({record.run for record in history}) > 1
    return list(_PLACE if several else _PLACE[1:])


def long_rows(history: History) -> list[Row]:
    """A row for each number: its stage, name, and for a curve its axis and place on it."""
    rows: list[Row] = []
    columns = place_columns(history)
    for record in history:
        head = {column: getattr(record, column) for column in (*columns, "stage")}
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
        writer = csv.DictWriter(file, list(rows[0]) if rows else place_columns(history))
        writer.writeheader()
        writer.writerows(rows)


def data_frame(history: History, form: str) -> Any:
    """The rows as a pandas DataFrame."""
    pandas = optional("pandas", "table")
    return pandas.DataFrame(_rows(history, form))


def write_npz(history: History, path: Path) -> None:
    """Write `{stage}/epoch`, `{stage}/step` and `{stage}/{name}`, padded with NaN.

    Where there are several runs, `{stage}/run` too.
    """
    import numpy as np

    arrays: dict[str, Any] = {}
    for stage in dict.fromkeys(record.stage for record in history):
        records = [record for record in history if record.stage == stage]
        for column in place_columns(history):
            places = [getattr(record, column) for record in records]
            arrays[f"{stage}/{column}"] = np.array(places)
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


MISSING = ("error", "blank")


def table_columns(history: History, names: Sequence[str] | None, missing: str) -> list[str]:
    """Where a row belongs, and the results to show."""
    check_choice("missing", missing, MISSING)
    known = history.scalars()
    if names is None:
        return [*place_columns(history), *known]
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise refuse("names", "a sequence of names", describe(names))
    unknown = [name for name in names if name not in known]
    if unknown and missing == "error":
        raise refuse("names", f"names among {known}", f"{unknown}")
    return [*place_columns(history), *names]


def text_table(history: History, names: Sequence[str] | None = None, missing: str = "error") -> str:
    """Aligned columns, and the stop reason below."""
    columns = table_columns(history, names, missing)
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
        self._n_shown = 0
        self._columns: list[str] = []
        self._stop_reason: str | None = None

    def show(self) -> None:
        """Print what is new."""
        rows = wide_rows(self.history)
        columns = [*place_columns(self.history), *self.history.scalars()]
        widths = [max(8, len(column)) for column in columns]
        if rows[self._n_shown :] and columns != self._columns:
            print(text_line(columns, widths))
            self._columns = columns
        for row in rows[self._n_shown :]:
            print(text_line([text_cell(row[column]) for column in columns], widths), flush=True)
        self._n_shown = len(rows)
        if self.history.stop_reason != self._stop_reason:
            self._stop_reason = self.history.stop_reason
            if self._stop_reason is not None:
                print(f"Stopped: {self._stop_reason}", flush=True)

    def begin_again(self) -> None:
        """Print all rows again, for the history has gone back to a checkpoint."""
        self._n_shown, self._columns = 0, []


def text_cell(value: Any) -> str:
    """A number as it is printed: counts whole, others with four digits, blanks empty."""
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    if math.isfinite(value) and value == int(value) and abs(value) > 1:
        return str(int(value))
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.4g}"


def rich_table(history: History, names: Sequence[str] | None = None, missing: str = "error") -> Any:
    """The table for a terminal."""
    columns = table_columns(history, names, missing)
    table = optional("rich.table", "table").Table(caption=_caption(history))
    for column in columns:
        table.add_column(column, justify="right")
    for row in wide_rows(history):
        table.add_row(*[text_cell(row.get(column)) for column in columns])
    return table


def _caption(history: History) -> str | None:
    return None if history.stop_reason is None else f"Stopped: {history.stop_reason}"
