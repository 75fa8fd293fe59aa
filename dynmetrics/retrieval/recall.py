"""Recall at k between paired embeddings, or of given similarities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_positive_int,
    describe,
    device_of,
    refuse,
)
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.numerics import histogram_median, ratio
from dynmetrics.core.state import BY_DATA, GROWS
from dynmetrics.retrieval.embeddings import SIMILARITIES, checked_embeddings, standings
from dynmetrics.retrieval.ranks import TIES, Standing, hit_chance, rank_of
from dynmetrics.retrieval.topk import (
    check_largest_k,
    checked_ks,
    checked_scores,
    checked_target,
    standing_of,
)

DIRECTIONS = ("query", "gallery", "both")
STORAGE = {"float32": torch.float32, "float64": torch.float64}


class RecallAtK(StreamingMetric):
    r"""Share of queries whose right candidate is among the k most similar, and the median rank.

    Give paired embeddings, row i of `queries` belonging to row i of `gallery`: every query is
    ranked against the whole gallery, at `compute`, block by block, and the embeddings of all ranks
    are kept until then: 8 D bytes a pair in float32, at most `capacity` pairs on a rank. If the
    gallery is known beforehand, give it to the constructor, or give `similarity` against it: then
    nothing is kept but sums and a histogram of ranks. Collapsed embeddings, for which everything is
    equally similar, get k / C.

    Args:
        k: one k or several.
        ties: "expected" over random orders, "optimistic" or "pessimistic" for the right candidate,
            or "lowest_index".
        direction: of paired embeddings: "query" ranks the gallery for every query; "gallery" the
            queries for every gallery row; "both" adds the second, with names that begin with
            `gallery_`. Similarities are ranked along their rows; transpose them for the other.
        metric: the similarity of embeddings, "cosine" or "dot".
        gallery: all candidates (C, D), if they are known: every query is ranked as it comes.
        capacity: the most pairs to keep on one rank; more are an error.
        storage: the type in which pairs are kept and compared, "float32" or "float64".
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `queries` (N, D) and `gallery` (N, D); or `queries` (Q, D) with `target`, if the
    gallery is known; or `similarity` (Q, C) with `target`. The target are indices (Q,), of
    `similarity` by default the diagonal, or booleans (Q, C) that mark several right candidates, of
    which any counts. Queries without a right candidate are skipped. A query with a NaN is a miss; a
    gallery row with one is no candidate, and a miss for those it belongs to.

    Returns:
        A dict: `recall_1`, `recall_5`, ..., `median_rank`, `mean_rank` (from 1), `n`, the number of
        queries, and `n_skipped`. The median is exact to half a rank. NaN without queries, and for k
        above the number of pairs, among which every model would be right.

    Raises:
        ValueError: for options or shapes that do not fit, for k above the candidates that are
            known, for more pairs than `capacity`, and for several kinds of input at once.

    References:
        torch_world `recall_at_k` (its value is `ties="optimistic"`, but for NaN), open_clip
        (`ties="lowest_index"`), to 1e-7.

    Example:
        >>> import torch
        >>> from dynmetrics.retrieval import RecallAtK
        >>> metric = RecallAtK(k=1)
        >>> metric.update(queries=torch.eye(2, 4), gallery=torch.eye(2, 4))
        >>> metric.update(queries=torch.eye(4)[2:], gallery=torch.ones(2, 4))
        >>> float(metric.compute()["recall_1"])
        0.75
    """

    higher_is_better = True
    hits: Tensor
    rank_counts: Tensor
    n: Tensor
    rank_sum: Tensor
    queries: list[Tensor]
    gallery: list[Tensor]

    def __init__(
        self,
        *,
        k: int | Sequence[int] = (1, 5, 10),
        ties: str = "expected",
        direction: str = "query",
        metric: str = "cosine",
        gallery: Tensor | None = None,
        capacity: int | None = None,
        storage: str = "float32",
        **kwargs: Any,
    ) -> None:
        ks = checked_ks(k)
        check_choice("ties", ties, TIES)
        check_choice("direction", direction, DIRECTIONS)
        check_choice("metric", metric, SIMILARITIES)
        check_choice("storage", storage, tuple(STORAGE))
        if capacity is not None:
            check_positive_int("capacity", capacity)
        candidates = None if gallery is None else checked_embeddings("gallery", gallery)
        if candidates is not None:
            check_largest_k(ks, len(candidates))
            if direction != "query":
                raise refuse("direction", "'query' for a known gallery", repr(direction))
        super().__init__(**kwargs)
        self.ks, self.ties, self.metric = ks, ties, metric
        self._known = candidates
        self.sides = ("query", "gallery") if direction == "both" else (direction,)
        sides = len(self.sides)
        self.add_sum("hits", (sides, len(ks)))
        self.add_sum("rank_sum", (sides,))
        self.add_counts("rank_counts", (sides, GROWS))
        self.add_counts("n", (sides, 2))
        for name in ("queries", "gallery"):
            self.add_rows(name, (BY_DATA,), STORAGE[storage], capacity)

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry of the result."""
        names = [*(f"recall_{k}" for k in self.ks), "median_rank", "mean_rank", "n", "n_skipped"]
        return {prefix + name: () for prefix in self._prefixes() for name in names}

    def update(
        self,
        queries: Tensor | None = None,
        gallery: Tensor | None = None,
        *,
        similarity: Tensor | None = None,
        target: Tensor | None = None,
    ) -> None:
        """Keep pairs (N, D), or rank queries (Q, D), or by similarities (Q, C)."""
        if self._known is not None:
            self._rank(self._known, queries, target, gallery, similarity)
            return
        if similarity is None:
            if target is not None:
                raise refuse("target", "None beside paired embeddings", describe(target))
            pairs = dict(
                zip(("queries", "gallery"), _pairs(queries, gallery, self.device), strict=True)
            )
            kinds = {name: self.state_specs[name].dtype for name in pairs}
            self.accumulate(**{name: rows.to(kinds[name]) for name, rows in pairs.items()})
            return
        if queries is not None or gallery is not None:
            raise refuse("queries", "None beside similarity", describe(queries))
        if self.sides != ("query",):
            expected = "paired embeddings for a direction but 'query' (or transpose it)"
            raise refuse("similarity", expected, describe(similarity))
        scores = checked_scores("similarity", similarity, self.ks)
        if target is None:
            if scores.shape[0] > scores.shape[1]:
                raise refuse("target", "given, with more queries than candidates", "None")
            target = torch.arange(len(scores), device=scores.device)
        if not len(scores):
            return
        sums = self._standing_sums(standing_of(scores, target, self.ties), scores.shape[1])
        self.accumulate(**self._sums([sums]))

    def _rank(self, known: Tensor, queries: Any, target: Any, *others: Any) -> None:
        """Rank queries against the known gallery."""
        for name, other in zip(("gallery", "similarity"), others, strict=True):
            if other is not None:
                raise refuse(name, "None beside a known gallery", describe(other))
        rows = checked_embeddings("queries", queries, self.device)
        if rows.shape[1] != known.shape[1]:
            raise refuse("queries", f"embeddings (Q, {known.shape[1]})", describe(queries))
        right = checked_target(target, len(rows), len(known), rows.device)
        if not len(rows):
            return
        self._known = known = known.to(self.device)
        dtype = torch.promote_types(rows.dtype, known.dtype)
        parts = standings(rows.to(dtype), known.to(dtype), right, self.metric, self.ties)
        self.accumulate(**self._sums([self._added(parts, len(known))]))

    def compute(self) -> dict[str, Tensor]:
        """Recalls and ranks over everything seen."""
        states = {"hits": self.hits, "rank_sum": self.rank_sum, "n": self.n}
        # Those that `similarity` was checked against are enough.
        counts, candidates = self.rank_counts, max(self.ks)
        if self.queries:
            pairs = [torch.cat(self.queries), torch.cat(self.gallery)]
            candidates = len(pairs[0])
            sums = self._sums([
                self._pair_sums(*(pairs if side == "query" else pairs[::-1])) for side in self.sides
            ])  # fmt: skip
            states = {name: states[name] + sums[name] for name in states}
            longest = max(counts.shape[1], sums["rank_counts"].shape[1])
            counts = _lengthened(counts, longest) + _lengthened(sums["rank_counts"], longest)
        result: dict[str, Tensor] = {}
        for i, prefix in enumerate(self._prefixes()):
            used, skipped = states["n"][i]
            for j, k in enumerate(self.ks):
                recall = ratio(states["hits"][i, j], used)
                recall = recall if k <= candidates else torch.full_like(recall, torch.nan)
                result[f"{prefix}recall_{k}"] = recall
            result[f"{prefix}median_rank"] = 1 + histogram_median(counts[i]) / 2
            result[f"{prefix}mean_rank"] = ratio(states["rank_sum"][i], used)
            result[f"{prefix}n"], result[f"{prefix}n_skipped"] = used, skipped
        return result

    def _prefixes(self) -> tuple[str, ...]:
        return ("", "gallery_")[: len(self.sides)]

    def _pair_sums(self, queries: Tensor, gallery: Tensor) -> dict[str, Tensor]:
        own = torch.arange(len(queries), device=queries.device)
        return self._added(standings(queries, gallery, own, self.metric, self.ties), len(gallery))

    def _added(self, blocks: Iterator[Standing], candidates: int) -> dict[str, Tensor]:
        parts = [self._standing_sums(block, candidates) for block in blocks]
        return {name: torch.stack([part[name] for part in parts]).sum(0) for name in parts[0]}

    def _standing_sums(self, standing: Standing, candidates: int) -> dict[str, Tensor]:
        """What the rows of one block add."""
        valid = standing.valid
        rank = rank_of(standing, self.ties, candidates)
        # Half ranks, so that the expected rank of a tie of two has a place of its own.
        place = (2 * rank - 2).round().to(torch.int64).clamp(max=2 * candidates)
        counts = torch.zeros(2 * candidates + 1, dtype=torch.int64, device=valid.device)
        return {
            "hits": torch.stack([hit_chance(standing, k, self.ties).sum() for k in self.ks]),
            "rank_sum": torch.where(valid, rank, 0.0).sum(),
            "rank_counts": counts.index_add(0, place, valid.to(torch.int64)),
            "n": torch.stack([valid.sum(), (~valid).sum()]),
        }

    @staticmethod
    def _sums(sides: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        longest = max(side["rank_counts"].shape[0] for side in sides)
        for side in sides:
            side["rank_counts"] = _lengthened(side["rank_counts"], longest)
        return {name: torch.stack([side[name] for side in sides]) for name in sides[0]}


def _pairs(queries: Any, gallery: Any, device: torch.device) -> tuple[Tensor, Tensor]:
    rows = checked_embeddings("queries", queries, device)
    others = checked_embeddings("gallery", gallery, device)
    if others.shape != rows.shape:
        raise refuse("gallery", f"paired embeddings {tuple(rows.shape)}", describe(gallery))
    return rows, others


def _lengthened(counts: Tensor, length: int) -> Tensor:
    return torch.nn.functional.pad(counts, (0, length - counts.shape[-1]))


def recall_at_k(
    similarity: Tensor,
    k: int | tuple[int, ...] = (1, 5, 10),
    targets: Tensor | None = None,
    *,
    ties: str = "expected",
) -> float | dict[str, float]:
    """`RecallAtK` of one matrix of similarities (Q, C): a number, or `R@k` for several k.

    Example:
        >>> import torch
        >>> recall_at_k(torch.tensor([[0.9, 0.9, 0.1], [0.2, 0.8, 0.1]]), k=(1, 2))
        {'R@1': 0.75, 'R@2': 1.0}
    """
    metric = RecallAtK(k=k, ties=ties, sync_on_compute=False).to(
        device_of("similarity", similarity)
    )
    metric.update(similarity=similarity, target=targets)
    result = metric.compute()
    values = {f"R@{one}": float(result[f"recall_{one}"]) for one in metric.ks}
    return values if not isinstance(k, int) else next(iter(values.values()))
