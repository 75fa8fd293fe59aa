"""Tensors of any type as words of 64 bits, so that many of them travel as one."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_BYTES = 8


def word_count(dtype: torch.dtype, shape: tuple[int, ...]) -> int:
    """How many words a tensor takes."""
    return -(-math.prod(shape) * dtype.itemsize // _BYTES)


def words_of(tensor: Tensor) -> Tensor:
    """The values of `tensor` as an int64 tensor (n,), filled up with zero bytes."""
    flat = tensor.reshape(-1)
    if flat.element_size() == _BYTES:
        return flat.view(torch.int64)
    flat = flat.contiguous()
    # Fresh memory starts at an even address, a slice may not.
    content = torch.zeros(
        word_count(flat.dtype, flat.shape) * _BYTES, dtype=torch.uint8, device=flat.device
    )
    content[: flat.numel() * flat.element_size()] = flat.view(torch.uint8)
    return content.view(torch.int64)


def tensor_of(words: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """The tensor whose `words_of` these are."""
    if dtype.itemsize == _BYTES:
        return words.view(dtype).view(shape)
    return words.view(dtype)[: math.prod(shape)].view(shape)
