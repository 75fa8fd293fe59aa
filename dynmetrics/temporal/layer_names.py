"""Names of layers as a state: so that ranks and checkpoints agree on whose numbers they hold."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dynmetrics.core.checks import refuse

NAME_BYTES = 128
"""The longest name that fits."""

CODE_LENGTH = 2 * NAME_BYTES
"""Every letter stands twice, the second time negative: a maximum over codes keeps both bounds."""


def encoded(names: Sequence[str], device: torch.device) -> Tensor:
    """Names as codes of letters (L, CODE_LENGTH), 0 behind the last."""
    codes = [list(name.encode().ljust(NAME_BYTES, b"\0")) for name in names]
    letters = torch.tensor(codes, dtype=torch.int16, device=device)
    return torch.cat([letters, -letters], dim=1)


def decoded(codes: Tensor) -> tuple[str, ...]:
    """The names from the maximum of their codes; reads the device.

    Raises:
        ValueError: if the codes were of different names.
    """
    names = []
    for row in codes.tolist():
        largest, smallest = row[:NAME_BYTES], [-code for code in row[NAME_BYTES:]]
        name = bytes(largest).rstrip(b"\0").decode(errors="replace")
        if largest != smallest:
            raise refuse("activations", "the same layers everywhere", f"{name!r} and another name")
        names.append(name)
    return tuple(names)
