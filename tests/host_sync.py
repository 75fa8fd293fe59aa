"""Finds operations that would make a host wait for its GPU, also on a machine without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "unique_dim",
         "_unique2", "unique_consecutive", "bincount", "nonzero_numpy", "allclose",
         "_linalg_check_errors", "_linalg_eigh", "_linalg_svd"}  # fmt: skip
METHODS = {"item", "tolist", "cpu", "numpy", "__array__", "__bool__", "__int__", "__float__",
           "__index__"}  # fmt: skip


class HostSyncError(RuntimeError):
    """An operation that reads the device."""


class _Dispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name().split("::")[1].split(".")[0]
        if name == "repeat_interleave" and (kwargs or {}).get("output_size") is None:
            raise HostSyncError(f"{name} without output_size reads the device")
        index = args[1] if name in {"index", "index_put", "index_put_"} else ()
        if name in READS or any(i is not None and i.dtype is torch.bool for i in index):
            raise HostSyncError(f"{name} reads the device")
        return func(*args, **(kwargs or {}))


class _Function(TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        target = (*args[1:2], (kwargs or {}).get("device")) if name == "to" else ()
        if name in METHODS or any(isinstance(t, str) and t == "cpu" for t in target):
            raise HostSyncError(f"{name} reads the device")
        return func(*args, **(kwargs or {}))


def without_host_sync(call: Callable[[], Any]) -> None:
    """Run `call`; raises `HostSyncError` at the first operation that reads the device."""
    with _Dispatch(), _Function():  # type: ignore[no-untyped-call]
        call()
