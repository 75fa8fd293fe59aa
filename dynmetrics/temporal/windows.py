"""When labels hold: their first occurrence."""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse


def first_label(labels: Tensor) -> Tensor:
    """The first label of every sample, held over all timesteps.

    A stimulus that is switched off leaves no label, yet one may ask whether the network still
    answers with it. A sample without any label keeps its negative code of t = 0.

    Args:
        labels: integer labels (B, T), negative where there is none.

    Returns:
        Labels (B, T), constant over T.

    Raises:
        ValueError: if `labels` is not (B, T).

    Example:
        >>> import torch
        >>> first_label(torch.tensor([[-1, 4, 4], [-1, -1, -1]]))
        tensor([[ 4,  4,  4],
                [-1, -1, -1]])
    """
    check_tensor("labels", labels)
    if labels.ndim != 2:
        raise refuse("labels", "the shape (B, T)", describe(labels))
    if labels.shape[1] == 0:
        return labels
    # Of several largest values argmax takes the first; it has no kernel for booleans.
    onset = (labels >= 0).to(torch.uint8).argmax(1, keepdim=True)
    return labels.gather(1, onset).expand_as(labels)
