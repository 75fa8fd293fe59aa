"""Noise ceilings: how well subjects agree, which is all that a model can be asked for."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, check_flag, describe, refuse
from dynmetrics.rsa.comparison import (
    COMPARISONS,
    NAN_POLICIES,
    check_nan,
    compare_vectors,
    pooling_form,
)
from dynmetrics.rsa.magnitudes import ordinary
from dynmetrics.rsa.vectors import rdm_vectors

POOLINGS = ("mean", "rank")


class Ceiling(NamedTuple):
    """Each subject against the others together (`lower`), and against all together (`upper`)."""

    upper: Tensor
    lower: Tensor


def noise_ceiling(
    rdms: Tensor,
    method: str = "spearman",
    pooling: str = "mean",
    squared: bool = False,
    nan_policy: str = "error",
) -> dict[str, Tensor]:
    """How well the RDMs of single subjects agree with that of all subjects together.

    `upper` compares each subject with the pool of all, itself included; `lower` with the pool of
    the others. The best possible model lies about between them. Neither is a strict bound: under
    pooling="mean" the rank-averaged RDM exceeds `upper`. Subjects that are pure noise still reach
    an upper ceiling of about 1 / sqrt(S), so read `lower` beside it: it is about 0 then.

    Args:
        rdms: (S, K, K), or vectors (S, P) of the strict upper triangle.
        method: a comparison of `compare_rdms`.
        pooling: "mean" averages the RDMs as they are (Algonauts 2019, Net2Brain, Brain-Score);
            "rank" averages them on the comparison's own scale: ranks, z-scores for Pearson, unit
            length for cosines (rsatoolbox).
        squared: average the squared comparisons (R2), as the Algonauts ceilings do.
        nan_policy: as in `compare_rdms`. "pairwise" pools the subjects that have a pair.

    Returns:
        {`upper` (), `lower` ()}, float64. Both are NaN for a single subject, which agrees with
        itself and says nothing.

    Raises:
        ValueError: as `compare_rdms`, and if `rdms` has no axis of subjects.

    References:
        Nili et al. (2014). Equal to rsatoolbox 0.3.2 `boot_noise_ceiling` ("rank") to 1e-8; the
        squared upper ceiling equals the constants of the Algonauts 2019 scorer.

    Example:
        >>> import torch
        >>> from dynmetrics.rsa import noise_ceiling
        >>> rdms = torch.tensor([[1.0, 2.0, 3.0], [1.0, 3.0, 2.0]])
        >>> {name: round(float(value), 3) for name, value in noise_ceiling(rdms).items()}
        {'upper': 0.866, 'lower': 0.5}
    """
    check_choice("method", method, COMPARISONS)
    check_choice("pooling", pooling, POOLINGS)
    check_choice("nan_policy", nan_policy, NAN_POLICIES)
    check_flag("squared", squared)
    vectors = rdm_vectors("rdms", rdms)
    if vectors.ndim != 2:
        raise refuse("rdms", "one RDM for each subject: (S, K, K) or (S, P)", describe(rdms))
    check_nan("rdms", vectors, nan_policy, method)
    if nan_policy == "listwise":
        vectors = vectors[:, ~vectors.isnan().any(0)]
    ceiling = subject_ceiling(vectors, method, nan_policy, pooling)
    each = Ceiling(*(c.square() for c in ceiling)) if squared else ceiling
    return {"upper": each.upper.mean(), "lower": each.lower.mean()}


def subject_ceiling(vectors: Tensor, method: str, nan_policy: str, pooling: str) -> Ceiling:
    """The two comparisons of each subject: vectors (S, P), results (S,)."""
    subjects = len(vectors)
    if subjects < 2:
        undefined = vectors.new_full((subjects,), torch.nan)
        return Ceiling(undefined, undefined)
    # Means of very large RDMs might not exist; their scale together changes no comparison.
    vectors = ordinary(vectors, each_row=False)
    pooled = pooling_form(vectors, method) if pooling == "rank" else vectors
    upper = compare_vectors(vectors, pool(pooled, nan_policy).unsqueeze(0), method, nan_policy)
    lower = []
    for s in range(subjects):
        others = pool(torch.cat([pooled[:s], pooled[s + 1 :]]), nan_policy)
        pair = vectors[s : s + 1], others.unsqueeze(0)
        lower.append(compare_vectors(*pair, method, nan_policy)[0, 0])
    return Ceiling(upper.squeeze(1), torch.stack(lower))


def pool(vectors: Tensor, nan_policy: str) -> Tensor:
    """The mean RDM (P,) of subjects (S, P); under "pairwise" of those that have the pair."""
    return vectors.nanmean(0) if nan_policy == "pairwise" else vectors.mean(0)


def resembles_noise(upper: Tensor, lower: Tensor, subjects: int) -> bool:
    """Whether mean ceilings look like those of subjects that share no signal."""
    chance = (upper <= 1.05 / subjects**0.5) & (lower <= 0.2 * upper)
    return bool((lower <= 0) | chance)
