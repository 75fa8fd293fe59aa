"""Matrices: RDMs, model time against brain time, and tables of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dynmetrics.core.checks import check_flag, describe, refuse
from dynmetrics.plot.style import array_of, check_labels, check_number, new_figure, set_title


def plot_rdm(
    rdm: Any, *, conditions: Sequence[Any] | None = None, ranks: bool = False,
    title: str | None = None,
) -> Any:  # fmt: skip
    """A representational dissimilarity matrix as a picture.

    Args:
        rdm: (K, K), from `RDM` or `rdm`; undefined (NaN) pairs are left white.
        conditions: K labels in the order of the matrix, drawn if there are at most 40.
        ranks: colour by the rank of the dissimilarity, as the field's figures often do.
        title: above the picture.

    Returns:
        The matplotlib figure.

    Raises:
        ValueError: if `rdm` is not square, or the labels are not as many as its conditions.
    """
    matrix = array_of("rdm", rdm, 2)
    if matrix.shape[0] != matrix.shape[1]:
        raise refuse("rdm", "a square matrix (K, K)", describe(rdm))
    labels = None if conditions is None else check_labels("conditions", conditions, len(matrix))
    check_flag("ranks", ranks)
    if ranks:
        matrix = _percentiles(matrix)
    figure, [[axis]] = new_figure(4.6, 4.0)
    image = axis.imshow(matrix, cmap="cividis", interpolation="nearest")
    label = "dissimilarity (percentile)" if ranks else "dissimilarity"
    figure.colorbar(image, ax=axis, shrink=0.85, label=label)
    _label_axes(axis, labels, labels)
    axis.spines[:].set_visible(False)
    set_title(axis, title)
    return figure


def plot_temporal_rsa(
    results: Any, *, dt: float | None = None, times: Any = None, title: str | None = None
) -> Any:
    """The correlation of model and brain for every pair of times, from `TemporalRSA`.

    Args:
        results: the result, or its entry `rho` (T, Tb).
        dt: milliseconds for each model timestep.
        times: the times of the brain data (Tb,).
        title: above the picture.

    Returns:
        The matplotlib figure; the peak is marked.

    Raises:
        ValueError: if there is no matrix `rho`, or the times do not fit it.
    """
    import numpy as np

    if isinstance(results, Mapping) and "rho" not in results:
        raise refuse("results", "an entry 'rho'", describe(results))
    matrix = array_of("results", results["rho"] if isinstance(results, Mapping) else results, 2)
    check_number("dt", dt, above=0.0)
    figure, [[axis]] = new_figure(5.0, 3.6)
    limit = float(np.nanmax(np.abs(matrix))) if np.isfinite(matrix).any() else 1.0
    step = 1.0 if dt is None else dt
    brain = np.arange(matrix.shape[1]) if times is None else array_of("times", times)
    if brain.shape != matrix.shape[1:]:
        raise refuse("times", f"the times of {matrix.shape[1]} columns", describe(times))
    model = np.arange(len(matrix)) * step
    image = axis.pcolormesh(
        _edges(brain), _edges(model), matrix, cmap="RdBu_r", vmin=-limit, vmax=limit
    )
    figure.colorbar(image, ax=axis, label="Spearman's rho")
    if np.isfinite(matrix).any():
        row, column = np.unravel_index(np.nanargmax(matrix), matrix.shape)
        axis.plot(brain[column], row * step, "k+", ms=9)
    axis.set_xlabel("brain time" if times is None else "brain time (as given)")
    axis.set_ylabel("model timestep" if dt is None else "model time (ms)")
    set_title(axis, title)
    return figure


def plot_scores(
    scores: Any, *, rows: Sequence[str], columns: Sequence[str], title: str | None = None
) -> Any:
    """A table of scores as a picture: layers against targets, a number in each cell.

    Args:
        scores: (R, C), for example the score of every layer for every target.
        rows: R labels.
        columns: C labels.
        title: above the picture.

    Returns:
        The matplotlib figure; the best row of every column is bold.

    Raises:
        ValueError: if the labels do not fit the scores.
    """
    import numpy as np

    matrix = array_of("scores", scores, 2)
    rows = check_labels("rows", rows, matrix.shape[0])
    columns = check_labels("columns", columns, matrix.shape[1])
    width, height = 1.6 + 0.9 * len(columns), 0.9 + 0.4 * len(rows)
    figure, [[axis]] = new_figure(max(3.0, width), max(1.8, height))
    axis.imshow(matrix, cmap="cividis", aspect="auto")
    finite = matrix[np.isfinite(matrix)]
    middle = (finite.min() + finite.max()) / 2 if finite.size else 0.0
    for (i, j), value in np.ndenumerate(matrix):
        best = np.isfinite(matrix[:, j]).any() and i == np.nanargmax(matrix[:, j])
        axis.text(
            j, i, f"{value:.3g}", ha="center", va="center", fontsize=8,
            color="white" if value <= middle else "black", fontweight="bold" if best else None,
        )  # fmt: skip
    _label_axes(axis, rows, columns)
    axis.spines[:].set_visible(False)
    set_title(axis, title)
    return figure


def _edges(centres: Any) -> Any:
    """The borders of cells around `centres`, halfway between them."""
    import numpy as np

    centres = np.asarray(centres, dtype=float)
    gaps = np.diff(centres) / 2 if len(centres) > 1 else np.array([0.5])
    middles = centres[:-1] + gaps if len(centres) > 1 else centres[:0]
    return np.concatenate([[centres[0] - gaps[0]], middles, [centres[-1] + gaps[-1]]])


def _percentiles(matrix: Any) -> Any:
    """The percentile of every value off the diagonal; the diagonal is 0."""
    import numpy as np

    off = ~np.eye(len(matrix), dtype=bool) & np.isfinite(matrix)
    ordered = np.sort(matrix[off])
    result = np.full_like(matrix, np.nan)
    result[off] = 100 * np.searchsorted(ordered, matrix[off], side="right") / max(1, len(ordered))
    np.fill_diagonal(result, 0.0)
    return result


def _label_axes(axis: Any, rows: Sequence[Any] | None, columns: Sequence[Any] | None) -> None:
    for labels, set_ticks in ((rows, axis.set_yticks), (columns, axis.set_xticks)):
        if labels is None or len(labels) > 40:
            set_ticks([])
        else:
            rotation = 90 if set_ticks == axis.set_xticks and len(labels) > 6 else 0
            set_ticks(range(len(labels)), [str(label) for label in labels], rotation=rotation)
