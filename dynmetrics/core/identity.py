"""What makes two metrics the same: their class and every option that is not at its default.

The text and its digest decide whether states may be shared, merged, loaded or synchronised.
Identity is declared by the constructor call and never inferred from values that happen to agree.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

_RUNTIME_OPTIONS = {
    "compute_on_cpu",
    "dist_sync_on_step",
    "process_group",
    "dist_sync_fn",
    "distributed_available_fn",
    "sync_on_compute",
    "compute_with_cache",
}
"""Options of torchmetrics that say where and when to compute, but not what."""


def configuration_of(cls: type, options: Mapping[str, Any]) -> str:
    """The constructor call as text, such as `TemporalAccuracy(top_k=(1, 5))`.

    Defaults are left out, so that a checkpoint survives a release that adds an option.
    """
    parameters = inspect.signature(getattr(cls, "__init__")).parameters  # noqa: B009
    defaults = {"network_output": None, **{k: p.default for k, p in parameters.items()}}
    chosen = [
        f"{name}={canonical(value)}"
        for name, value in sorted(options.items())
        if name not in _RUNTIME_OPTIONS
        and canonical(value) != canonical(defaults.get(name, inspect.Parameter.empty))
    ]
    return f"{cls.__name__}({', '.join(chosen)})"


def canonical(value: Any) -> str:
    """A text that is equal for equal values in every process."""
    if isinstance(value, Tensor) and (value.layout is not torch.strided or value.is_meta):
        # Without numbers to read; no metric takes it, and says so itself.
        return f"tensor{tuple(value.shape)}:{value.dtype}:{value.layout}:{value.device}"
    if isinstance(value, Tensor):
        tensor = value.detach().cpu().contiguous()
        content = hashlib.sha256(tensor.flatten().view(torch.uint8).numpy().tobytes())
        return f"tensor{tuple(tensor.shape)}:{tensor.dtype}:{content.hexdigest()[:16]}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return type(value).__name__ + canonical(fields)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {canonical(v)}" for k, v in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        inner = ", ".join(map(canonical, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return repr(value)


def digest(configuration: str) -> Tensor:
    """16 numbers from 0 to 255. So small, that no tolerance takes two of them for equal."""
    return torch.tensor(list(hashlib.sha256(configuration.encode()).digest()[:16]))
