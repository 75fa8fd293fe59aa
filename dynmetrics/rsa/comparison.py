"""How similar two RDMs are.

Nearly every comparison is an inner product of RDMs that are prepared: ranked, centred, scaled. So
a brain's RDMs are prepared once, and a model's once per comparison.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dynmetrics.core.checks import check_choice, refuse
from dynmetrics.core.ranks import average_ranks, centred, centred_ranks, dense_ranks, unit
from dynmetrics.rsa.kendall import kendall
from dynmetrics.rsa.magnitudes import ordinary
from dynmetrics.rsa.vectors import rdm_vectors, square

COMPARISONS = (
    "spearman",
    "rho-a",
    "pearson",
    "kendall-tau-a",
    "kendall-tau-b",
    "cosine",
    "whitened-cosine",
    "whitened-pearson",
)
NAN_POLICIES = ("error", "pairwise", "listwise", "propagate")


def compare_rdms(
    a: Tensor, b: Tensor, method: str = "spearman", nan_policy: str = "error"
) -> Tensor:
    """Compare each RDM of `a` with each RDM of `b`, over their pairs of conditions.

    "spearman" is the field's default. With models that tie (categories), "rho-a" and
    "kendall-tau-a" do not favour the model that ties more; "kendall-tau-b" corrects for ties.
    "pearson" and "cosine" take distances at face value. "whitened-cosine" and "whitened-pearson"
    weigh pairs by how distance estimates covary; the former, of squared Euclidean RDMs, is linear
    CKA of the patterns. All lie between -1 and 1 (0 and 1 for cosines of distances).

    Args:
        a: RDMs (..., K, K), or vectors of their strict upper triangle (..., P).
        b: likewise, of the same conditions in the same order.
        method: one of the above.
        nan_policy: NaN entries are an "error"; "pairwise" leaves out the pairs that are NaN in the
            two RDMs compared; "listwise" those that are NaN in any RDM of `a` or `b`; "propagate"
            makes the comparison NaN. Ranks are taken after leaving out.

    Returns:
        float64, the leading axes of `a` and then those of `b`. NaN where an RDM is constant
        (where it is zero, for the cosines), and with fewer than two pairs.

    Raises:
        ValueError: for asymmetric RDMs, different numbers of conditions, NaN under "error", and
            NaN to be left out of a whitened comparison, which needs complete RDMs.

    References:
        Kriegeskorte et al. (2008); Nili et al. (2014); Schuett et al. (2023) for rho-a; Diedrichsen
        et al. (2021) for whitening. Equal to SciPy and to rsatoolbox 0.3.2 to 1e-9, except that a
        constant RDM gives NaN where rsatoolbox gives 0.

    Example:
        >>> import torch
        >>> from dynmetrics.rsa import compare_rdms
        >>> compare_rdms(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0]))
        tensor(0.5000, dtype=torch.float64)
    """
    check_choice("method", method, COMPARISONS)
    check_choice("nan_policy", nan_policy, NAN_POLICIES)
    ours, theirs = rdm_vectors("a", a), rdm_vectors("b", b)
    if ours.shape[-1] != theirs.shape[-1]:
        raise refuse("b", f"RDMs of {ours.shape[-1]} pairs as in a", f"{theirs.shape[-1]} pairs")
    result = compare_vectors(
        ours.reshape(-1, ours.shape[-1]),
        theirs.to(ours.device).reshape(-1, theirs.shape[-1]),
        method,
        nan_policy,
    )
    return result.reshape(ours.shape[:-1] + theirs.shape[:-1])


def compare_vectors(a: Tensor, b: Tensor, method: str, nan_policy: str) -> Tensor:
    """Vectors (A, P) against (B, P): (A, B)."""
    missing_a, missing_b = a.isnan(), b.isnan()
    incomplete = bool(missing_a.any() | missing_b.any())
    if nan_policy == "propagate" or not incomplete:
        return compare_prepared(prepare(a, method), prepare(b, method), method)
    check_nan("rdm", a, nan_policy, method)
    check_nan("rdm", b, nan_policy, method)
    if nan_policy == "listwise":
        kept = ~(missing_a.any(0) | missing_b.any(0))
        return compare_vectors(a[:, kept], b[:, kept], method, "propagate")
    result = a.new_empty(len(a), len(b))
    for i in range(len(a)):
        for j in range(len(b)):
            kept = ~(missing_a[i] | missing_b[j])
            pair = a[i : i + 1, kept], b[j : j + 1, kept]
            result[i, j] = compare_vectors(*pair, method, "propagate")[0, 0]
    return result


def check_nan(argument: str, vectors: Tensor, nan_policy: str, method: str) -> None:
    """Refuse NaN where the policy forbids it, or where no method could leave it out."""
    missing = vectors.isnan()
    if nan_policy == "propagate" or not bool(missing.any()):
        return
    got = f"{int(missing.sum())} NaN among {missing.numel()} entries"
    if nan_policy == "error":
        raise refuse(argument, "no NaN (see nan_policy)", got)
    if method.startswith("whitened"):
        raise refuse(argument, f"complete RDMs for {method!r}", got)


def prepare(vectors: Tensor, method: str) -> Tensor:
    """RDM vectors (N, P) as rows whose inner products compare them; see `compare_prepared`."""
    n = vectors.shape[-1]
    if n < 2:
        return vectors.new_full((len(vectors), 1), torch.nan)
    if method == "spearman":
        return unit(centred_ranks(average_ranks(vectors)))
    if method == "rho-a":
        ranks = centred_ranks(average_ranks(vectors))
        constant = (ranks == 0).all(-1, keepdim=True)
        scaled: Tensor = ranks * (12 / (n**3 - n)) ** 0.5
        return torch.where(constant, torch.nan, scaled)
    if method.startswith("kendall"):
        return torch.where(vectors.isnan(), torch.nan, dense_ranks(vectors).to(torch.float64))
    # What is left does not depend on the scale of a row, but its squares might not exist.
    vectors = ordinary(vectors)
    if method == "pearson":
        return unit(centred(vectors))
    if method == "cosine":
        return unit(vectors)
    distances = square(centred(vectors) if method == "whitened-pearson" else vectors)
    rows = distances.mean(-1, keepdim=True)
    gram = rows + rows.mT - distances - rows.mean(-2, keepdim=True)
    return unit(gram.flatten(-2))


def compare_prepared(a: Tensor, b: Tensor, method: str) -> Tensor:
    """(A, Q) against (B, Q): (A, B)."""
    if not method.startswith("kendall"):
        return (a @ b.mT).clamp(-1, 1)
    result = a.new_full((len(a), len(b)), torch.nan)
    for i, ours in enumerate(a):
        for j, theirs in enumerate(b):
            if not bool(ours.isnan().any() | theirs.isnan().any()):
                ranks = ours.to(torch.int64), theirs.to(torch.int64)
                result[i, j] = kendall(*ranks, method[-1])
    return result


def pooling_form(vectors: Tensor, method: str) -> Tensor:
    """RDM vectors on the comparison's own scale, before subjects are averaged on it."""
    if method in ("spearman", "rho-a") or method.startswith("kendall"):
        return average_ranks(vectors)
    vectors = ordinary(vectors)
    return unit(centred(vectors) if method.endswith("pearson") else vectors)
