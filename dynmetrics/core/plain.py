"""Whether shortcuts for tensors in the memory of the host may be taken."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.overrides import has_torch_function


def on_plain_cpu(values: Tensor) -> bool:
    """Whether values may be looked at, because no device has to be waited for.

    Not while a compiler, a tracer or a gradient watches.
    """
    return (
        type(values) is Tensor
        and values.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and not has_torch_function((values,))
        and not (values.requires_grad and torch.is_grad_enabled())
    )
