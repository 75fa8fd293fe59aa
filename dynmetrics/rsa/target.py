"""A brain to compare models with: its RDMs, prepared once, and what its subjects agree on."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from dynmetrics.rsa.ceilings import Ceiling, pool, subject_ceiling
from dynmetrics.rsa.comparison import check_nan, compare_prepared, compare_vectors, prepare
from dynmetrics.rsa.magnitudes import ordinary
from dynmetrics.rsa.vectors import square, upper_triangle

_SHUFFLED_VALUES = 1 << 22


@dataclass(frozen=True, eq=False)
class Comparison:
    """One model RDM against a target of S subjects and Tb brain timesteps.

    `subjects` (S, Tb) and `mean` (Tb,) are signed comparisons; `ceiling` holds (S, Tb) each.
    """

    subjects: Tensor
    mean: Tensor
    ceiling: Ceiling
    pairs: Tensor


@dataclass(frozen=True, eq=False)
class Target:
    """Brain RDM vectors (S, Tb, P), their mean (Tb, P), and both prepared for the comparison.

    Built once by `build_target`. Where NaN has to be left out pair by pair there is nothing to
    prepare, since ranks depend on the pairs that are left.
    """

    method: str
    nan_policy: str
    vectors: Tensor
    mean: Tensor
    kept: Tensor | None
    prepared: Tensor | None
    prepared_mean: Tensor | None
    ceiling: Ceiling

    def to(self, device: torch.device) -> Target:
        """The same target on another device."""
        moved: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                moved[field.name] = value.to(device)
        ceiling = Ceiling(*(part.to(device) for part in self.ceiling))
        return replace(self, **moved, ceiling=ceiling)

    def compare(self, models: Tensor, leave_out: bool) -> list[Comparison]:
        """Model RDMs (M, K, K) with the target.

        Pairs that are NaN in a model are left out of everything, ceilings included, if `leave_out`
        or if the policy says so; else the comparison is NaN.
        """
        vectors = upper_triangle(models)
        missing = vectors.isnan()
        drop = leave_out or self.nan_policy in ("pairwise", "listwise")
        # Whitening is a matter of the whole matrix.
        drop = drop and not self.method.startswith("whitened")
        if not (drop and bool(missing.any())):
            return self._compare_all(vectors)
        results = []
        for vector, absent in zip(vectors, missing, strict=True):
            target = self.without(absent) if bool(absent.any()) else self
            part = vector[~absent] if target is not self else vector
            results += target._compare_all(part.unsqueeze(0))
        return results

    def without(self, absent: Tensor) -> Target:
        """The target restricted to the pairs that are not `absent` (P,)."""
        kept = ~absent if self.kept is None else ~absent[self.kept]
        target = build_target(self.vectors[..., kept], self.method, self.nan_policy)
        # Models come without the absent pairs, but still with those that the policy left out.
        return target if self.kept is None else replace(target, kept=self.kept[~absent])

    def _compare_all(self, vectors: Tensor) -> list[Comparison]:
        vectors = vectors if self.kept is None else vectors[:, self.kept]
        subjects, times = self.vectors.shape[:2]
        by_subject = vectors.new_empty(times, len(vectors), subjects)
        by_mean = vectors.new_empty(times, len(vectors))
        ours = prepare(vectors, self.method) if self.prepared is not None else None
        for t in range(times):
            if ours is None or self.prepared is None or self.prepared_mean is None:
                arguments = self.method, self.nan_policy
                by_subject[t] = compare_vectors(vectors, self.vectors[:, t], *arguments)
                by_mean[t] = compare_vectors(vectors, self.mean[t : t + 1], *arguments)[:, 0]
            else:
                by_subject[t] = compare_prepared(ours, self.prepared[t], self.method)
                mean = self.prepared_mean[t : t + 1]
                by_mean[t] = compare_prepared(ours, mean, self.method)[:, 0]
        pairs = (~(vectors.isnan() | self.mean.isnan().any(0))).sum(1)
        return [
            Comparison(by_subject[:, m].mT, by_mean[:, m], self.ceiling, pairs[m])
            for m in range(len(vectors))
        ]

    def permuted(
        self, model: Tensor, permutations: Tensor, leave_out: bool
    ) -> tuple[Tensor, Tensor]:
        """A model RDM (K, K) with its conditions permuted (N, K), against the target.

        Returns the comparisons with the subjects (N, S, Tb) and with their mean (N, Tb).
        """
        once = self.kept is None and not self.method.startswith("kendall")
        once = once and not bool(model.isnan().any())
        # So many at once that they stay in the order of 32 MB.
        chunks = torch.split(permutations, max(1, _SHUFFLED_VALUES // model.numel()))
        parts = []
        if once and self.prepared is not None and self.prepared_mean is not None:
            stacked = torch.cat([self.prepared, self.prepared_mean.unsqueeze(1)], 1)
            # Ranks permute along with the conditions: the model is ranked once.
            row = prepare(upper_triangle(model).unsqueeze(0), self.method)[0]
            white = self.method.startswith("whitened")
            matrix = row.view(model.shape) if white else square(row)
            for chunk in chunks:
                shuffled = matrix[chunk.unsqueeze(2), chunk.unsqueeze(1)]
                rows = shuffled.flatten(1) if white else upper_triangle(shuffled)
                parts.append(torch.einsum("nq,tsq->nst", rows, stacked).clamp(-1, 1))
        else:
            for chunk in chunks:
                shuffled = model[chunk.unsqueeze(2), chunk.unsqueeze(1)]
                for found in self.compare(shuffled, leave_out):
                    both = torch.cat([found.subjects, found.mean.unsqueeze(0)])
                    parts.append(both.unsqueeze(0))
        everything = torch.cat(parts)
        return everything[:, :-1], everything[:, -1]


def build_target(vectors: Tensor, method: str, nan_policy: str) -> Target:
    """A target from brain RDM vectors (S, Tb, P) in float64.

    Raises:
        ValueError: for NaN that the policy forbids.
    """
    check_nan("brain", vectors, nan_policy, method)
    kept = None
    if nan_policy == "listwise" and bool(vectors.isnan().any()):
        kept = ~vectors.isnan().any(0).any(0)
        vectors = vectors[..., kept]
    # One scale for all, which changes no comparison: the mean of very large RDMs might not exist.
    vectors = ordinary(vectors, each_row=False)
    mean = torch.stack([pool(vectors[:, t], nan_policy) for t in range(vectors.shape[1])])
    ceilings = [
        subject_ceiling(vectors[:, t], method, nan_policy, "mean") for t in range(vectors.shape[1])
    ]
    ceiling = Ceiling(*(torch.stack(part, 1) for part in zip(*ceilings, strict=True)))
    prepared = prepared_mean = None
    if nan_policy == "propagate" or not bool(vectors.isnan().any()):
        prepared = torch.stack([prepare(vectors[:, t], method) for t in range(vectors.shape[1])])
        prepared_mean = prepare(mean, method)
    return Target(method, nan_policy, vectors, mean, kept, prepared, prepared_mean, ceiling)
