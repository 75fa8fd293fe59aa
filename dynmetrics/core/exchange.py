"""How tensors travel between ranks: torch.distributed, or the user's own gather function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics.utilities.distributed import gather_all_tensors

Operation = Literal["sum", "max", "min"]


class Exchange:
    """Gathers and reduces over a process group of torch.distributed."""

    def __init__(self, group: Any | None = None) -> None:
        self.group = group

    def device(self, local: torch.device) -> torch.device:
        """Where a tensor must lie to travel: NCCL takes CUDA tensors only, gloo CPU tensors."""
        backend = str(dist.get_backend(self.group))
        if "nccl" in backend:
            return local if local.type == "cuda" else torch.device("cuda")
        return torch.device("cpu")

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in rank order; all have the same shape."""
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(self.group))]
        dist.all_gather(parts, tensor, group=self.group)
        return parts

    def reduce(self, tensor: Tensor, operation: Operation) -> Tensor:
        """The elementwise sum, maximum or minimum over all ranks."""
        result = tensor.clone()
        reduce_op = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}
        dist.all_reduce(result, reduce_op[operation], group=self.group)
        return result


class GatherFunctionExchange(Exchange):
    """Uses a `dist_sync_fn(tensor, group=...) -> list of tensors`, as torchmetrics defines it."""

    def __init__(
        self, gather_function: Callable[..., Sequence[Tensor]], group: Any | None = None
    ) -> None:
        super().__init__(group)
        self.gather_function = gather_function

    def device(self, local: torch.device) -> torch.device:
        """Wherever it lies: the user's function knows better."""
        return local

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in rank order."""
        return list(self.gather_function(tensor, group=self.group))

    def reduce(self, tensor: Tensor, operation: Operation) -> Tensor:
        """The elementwise sum, maximum or minimum over all ranks, from a gather."""
        parts = torch.stack(self.gather(tensor))
        if operation == "sum":
            return parts.sum(0)
        return parts.amax(0) if operation == "max" else parts.amin(0)


def exchange_for(gather_function: Callable[..., Any] | None, group: Any | None) -> Exchange:
    """The exchange that the user's options ask for."""
    if gather_function is None or gather_function is gather_all_tensors:
        return Exchange(group)
    return GatherFunctionExchange(gather_function, group)
