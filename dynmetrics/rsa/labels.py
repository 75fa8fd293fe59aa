"""The ids of conditions and the times that a file holds beside its RDMs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import refuse
from dynmetrics.rsa.conditions import Id, listed, parsed_ids


def ids_in(file: str, name: str, array: Any) -> tuple[Id, ...]:
    """The ids of an array from a file, in whichever form its writer keeps numbers or text.

    Raises:
        ValueError: naming file, entry and values, for what are no whole numbers and no text.
    """
    values = _vector(file, name, array, "ids")
    broken = [v for v in values if isinstance(v, float) and not v.is_integer()]
    if broken:
        raise refuse(name, f"whole numbers or text in {file}", listed(broken))
    values = [int(value) if isinstance(value, float) else value for value in values]
    if any(isinstance(value, bytes) for value in values):
        try:
            values = [v.decode() if isinstance(v, bytes) else v for v in values]
        except UnicodeDecodeError as error:
            raise refuse(name, f"text in UTF-8 in {file}", str(error)) from error
    return parsed_ids(name, values)


def times_in(file: str, name: str, array: Any) -> Tensor:
    """The times of an array from a file.

    Raises:
        ValueError: naming file and entry, for what are no finite numbers.
    """
    values = _vector(file, name, array, "times")
    try:
        numbers = [float(value) for value in values if not isinstance(value, (str, bytes, bool))]
    except (TypeError, OverflowError):
        numbers = []
    times = torch.tensor(numbers, dtype=torch.float64)
    if len(numbers) != len(values) or not bool(times.isfinite().all()):
        raise refuse(name, f"finite numbers in {file}", listed(values))
    return times


def _vector(file: str, name: str, array: Any, what: str) -> list[Any]:
    """The values of a vector, or of a MATLAB row or column, which have two axes."""
    if max(array.shape, default=1) != array.size:
        raise refuse(name, f"{what} along one axis in {file}", f"the shape {array.shape}")
    values: list[Any] = array.ravel().tolist()
    return values
