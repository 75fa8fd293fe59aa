"""Whether what is read out at one timestep can be read at another."""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.checks import check_tensor, describe, refuse
from dynmetrics.core.numerics import ratio
from dynmetrics.temporal.inputs import temporal_inputs
from dynmetrics.temporal.ranking import label_hits


def temporal_generalisation(
    features: Tensor,
    weights: Tensor,
    target: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
) -> Tensor:
    """The accuracy of the readout of every timestep on the features of every timestep.

    A square block means a code that stays the same over these timesteps; a mere diagonal one that
    changes from step to step. One readout is applied at a time, so memory is that of (B, T, C).

    Args:
        features: (B, T, D).
        weights: linear readouts (A, C, D), one for each of A timesteps at which they were fitted.
        target: integer labels (B,) or (B, T), negative where there is none.
        mask: boolean (B,) or (B, T), True where a row counts.
        bias: (A, C), if the readouts have one.

    Returns:
        (A, T), float64: row = the timestep of the readout, column = that of the features. Fractions
        in [0, 1], NaN without a label. For A = T the diagonal is accuracy over time.

    Raises:
        ValueError: for shapes that do not fit.

    References:
        King and Dehaene (2014); the layout of MNE's `GeneralizingEstimator.score`.

    Example:
        >>> import torch
        >>> features = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
        >>> temporal_generalisation(features, torch.eye(2).expand(2, 2, 2), torch.tensor([0]))
        tensor([[1., 0.],
                [1., 0.]], dtype=torch.float64)
    """
    for name, value in (("features", features), ("weights", weights)):
        check_tensor(name, value)
        if value.ndim != 3 or not value.is_floating_point():
            raise refuse(name, "a floating tensor of three axes", describe(value))
    if weights.shape[2] != features.shape[2]:
        raise refuse("weights", f"readouts of {features.shape[2]} features", describe(weights))
    if bias is None:
        bias = weights.new_zeros(weights.shape[:2])
    elif bias.shape != weights.shape[:2]:
        raise refuse("bias", f"the shape {tuple(weights.shape[:2])}", describe(bias))
    rows = []
    for weight, offset in zip(weights, bias, strict=True):
        inputs = temporal_inputs(features @ weight.T + offset, target, mask)
        [hits], _ = label_hits(inputs.preds, inputs.labels, (1,))
        valid = inputs.labels >= 0
        rows.append(ratio((hits & valid).sum(0), valid.sum(0)))
    return torch.stack(rows)
