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

    @property
    def room(self) -> int:
        """How many numbers of 64 bits a rank may send without asking: 32 KB cost what 1 KB does.

        With many ranks less, for every rank gets the numbers of all.
        """
        return max(512, min(4096, (1 << 17) // dist.get_world_size(self.group)))

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

    def gather_rows(self, rows: Tensor) -> list[Tensor]:
        """The tensors of all ranks, in rank order, where they may differ in length."""
        sizes = self.gather(torch.tensor([len(rows)], device=rows.device))
        lengths = [int(size) for size in sizes]
        padded = rows.new_zeros((max(lengths), *rows.shape[1:]))
        padded[: len(rows)] = rows
        parts = self.gather(padded)
        return [part[:length] for part, length in zip(parts, lengths, strict=True)]

    @property
    def rank(self) -> int:
        """The place of this process in the group."""
        return int(dist.get_rank(self.group))

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

    @property
    def room(self) -> int:
        """How many numbers a rank may send without asking; how many ranks there are is unknown."""
        return 1024

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


class NoExchange(Exchange):
    """A group of one process."""

    rank = 0

    def device(self, local: torch.device) -> torch.device:
        """Where the tensor is."""
        return local

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensor alone."""
        return [tensor]

    def reduce(self, tensor: Tensor, operation: Operation) -> Tensor:
        """The tensor itself."""
        return tensor


class HomeExchange(Exchange):
    """Another exchange for tensors that lie on `home`, and come back to it."""

    def __init__(self, other: Exchange, home: torch.device) -> None:
        super().__init__(other.group)
        self.other = other
        self.home = home

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all ranks, at home."""
        away = tensor.to(self.other.device(self.home))
        return [part.to(self.home) for part in self.other.gather(away.contiguous())]

    def reduce(self, tensor: Tensor, operation: Operation) -> Tensor:
        """The elementwise sum, maximum or minimum, at home."""
        away = tensor.to(self.other.device(self.home))
        return self.other.reduce(away, operation).to(self.home)


def exchange_for(gather_function: Callable[..., Any] | None, group: Any | None) -> Exchange:
    """The exchange that the user's options ask for."""
    if gather_function is None or gather_function is gather_all_tensors:
        return Exchange(group)
    return GatherFunctionExchange(gather_function, group)
