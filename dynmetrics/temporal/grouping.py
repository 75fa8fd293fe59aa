"""Means and deviations over samples at every timestep, of all samples or of every class.

The moments of `core.moments`, streamed, with one more group behind the C classes: samples whose
first label is none of them. All groups together are all samples.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.moments import batch_moments, moment_mean, moment_variance


def class_of_sample(first_labels: Tensor, num_classes: int) -> Tensor:
    """The group (B,) of first labels (B,): the class, or C where it is none of the C."""
    known = (first_labels >= 0) & (first_labels < num_classes)
    return torch.where(known, first_labels, num_classes)


def moments_over_samples(
    values: Tensor, mask: Tensor | None = None, group: Tensor | None = None, num_groups: int = 1
) -> Tensor:
    """The packed moments of `values` (..., B, T) over the samples where `mask` is True.

    Returns:
        (3, ..., T), or by the `group` (B,) of the samples (3, ..., T, num_groups).
    """
    if group is None:
        return batch_moments(values, -2, mask)
    values = values.to(torch.float64)
    counts = torch.ones_like(values) if mask is None else mask.to(torch.float64).expand_as(values)
    if mask is not None:
        values = torch.where(mask, values, 0.0)
    n = _sum_by_group(counts, group, num_groups)
    mean = _sum_by_group(values, group, num_groups) / n.clamp(min=1)
    deviations = torch.where(counts > 0, values - mean.index_select(-2, group), 0.0)
    squares = _sum_by_group(deviations.square(), group, num_groups)
    return torch.stack([n, mean, squares]).transpose(-1, -2)


def _sum_by_group(values: Tensor, group: Tensor, num_groups: int) -> Tensor:
    """The sums (..., num_groups, T) of `values` (..., B, T)."""
    sums = values.new_zeros((*values.shape[:-2], num_groups, values.shape[-1]))
    return sums.index_add(-2, group, values)


def pool_last(moments: Tensor) -> Tensor:
    """The packed moments of all entries of the last axis together."""
    n = moments[0].sum(-1)
    mean = (moments[0] * moments[1]).sum(-1) / n.clamp(min=1)
    between = moments[0] * (moments[1] - mean.unsqueeze(-1)).square()
    return torch.stack([n, mean, (moments[2] + between).sum(-1)])


def mean_and_deviation(moments: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, unbiased standard deviation and number; NaN where too few were counted."""
    mean, variance = moment_mean(moments), moment_variance(moments, correction=1)
    return mean, variance.sqrt(), moments[0].to(torch.int64)
