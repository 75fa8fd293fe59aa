"""Argument checks with one message form: argument, what was expected, what came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_LARGEST = (1 << 63) - 1


def describe(value: Any) -> str:
    """A short text for an error message: dtype and shape of a tensor, else type and value."""
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"a {dtype} tensor of shape {tuple(value.shape)} on {value.device}"
    if isinstance(value, Mapping):
        return f"a mapping with the entries {sorted(map(str, value))}"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"


def refuse(argument: str, expected: str, got: str) -> ValueError:
    """The one error of the library, to be raised by the caller; `describe` words a value."""
    return ValueError(f"{argument}: expected {expected}, got {got}")


def check_choice(argument: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse `value` unless it is one of the named `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise refuse(argument, "one of " + ", ".join(map(repr, choices)), describe(value))


def check_real(argument: str, value: Any) -> None:
    """Refuse anything but a number; NaN is one."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise refuse(argument, "a number", describe(value))


def several_of(argument: str, value: Any, choices: Sequence[str]) -> tuple[str, ...]:
    """One choice or several different ones, as a tuple."""
    chosen = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for one in chosen:
        check_choice(argument, one, choices)
    if not chosen or len(set(chosen)) < len(chosen):
        raise refuse(argument, "one choice or several different ones", describe(value))
    return chosen


def check_flag(argument: str, value: Any) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool):
        raise refuse(argument, "True or False", describe(value))


def check_positive_int(argument: str, value: Any) -> None:
    """Refuse anything but an integer of at least 1 (a bool is no integer here)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise refuse(argument, "an integer of at least 1", describe(value))
    if value > _LARGEST:
        raise refuse(argument, "an integer below 2^63", describe(value))


def check_fraction(argument: str, value: Any) -> None:
    """Refuse anything but a number strictly between 0 and 1."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0.0 < value < 1.0:
        raise refuse(argument, "a number between 0 and 1, both excluded", describe(value))


def check_tensor(argument: str, value: Any, device: torch.device | None = None) -> None:
    """Refuse anything but a real dense tensor, on `device` if one is given."""
    if not isinstance(value, Tensor):
        hint = ""
        if isinstance(value, Mapping):
            hint = " (a network with several outputs: choose one by network_output)"
        raise refuse(argument, f"a tensor{hint}", describe(value))
    if value.is_complex() or value.layout is not torch.strided or value.is_quantized:
        raise refuse(argument, "a real dense tensor", describe(value))
    if device is not None and value.device != device:
        raise refuse(argument, f"a tensor on the metric's device {device}", describe(value))


def device_of(argument: str, value: Any) -> torch.device:
    """Where an input lies: a tensor, or a tuple of tensors that stands for one."""
    leading = value[0] if isinstance(value, tuple) and value else value
    check_tensor(argument, leading if isinstance(leading, Tensor) else value)
    device: torch.device = leading.device
    return device


def whole_numbers(argument: str, value: Tensor) -> Tensor:
    """`value` as int64.

    Integers and booleans cost nothing. Floating labels are accepted if every one is a whole
    number; that question has to read the data, so on a GPU it waits for the device.
    """
    if not value.is_floating_point():
        return value.to(torch.int64)
    rounded = value.round()
    # NaN differs from itself, and so is refused as well; int64 ends before 2^63.
    if bool(((rounded != value) | (value.abs() >= 2.0**63)).any()):
        raise refuse(argument, "whole numbers", describe(value))
    return rounded.to(torch.int64)


def select_output(argument: str, value: Any, network_output: str) -> Any:
    """The entry of `value` that a metric with `network_output` reads; other inputs pass through."""
    if not isinstance(value, Mapping):
        return value
    if network_output not in value:
        raise refuse(argument, f"a mapping with an entry {network_output!r}", describe(value))
    return value[network_output]
