"""LayerRSA: several layers against several brain regions, in one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import describe, refuse
from dynmetrics.rsa.brain_data import BrainRDMs
from dynmetrics.rsa.brain_metric import BrainMetric
from dynmetrics.rsa.recipes import over_window, percent, scores

_TABLES = ("score", "score_mean_rdm", "score_algonauts2019", "rho", "rho_mean_rdm", "r2")
_CEILINGS = ("ceiling_upper", "ceiling_lower", "ceiling_upper_r2", "ceiling_lower_r2")


class LayerRSA(BrainMetric):
    """Every layer of a network against every target: regions, or windows of time.

    One table answers what a track of the Algonauts challenge asks: EVC and IT (space), or the early
    and the late window (time), each with its best layer. `track_score` is the track's number, with
    the best layer for each target: a ratio of means, not a mean of ratios. The best of several
    layers is biased upwards; choose on other data than you report. State: 8 K D bytes for each
    layer.

    Args:
        layers: names of the layers, entries of the mapping that `update` takes.
        targets: a mapping from names to brains as `RSA` takes them, all with the same conditions.
            Brains (S, Tb, K, K) are windows: correlations are averaged over their time within each
            subject, before they are squared.
        conditions: as in `RSA`, like all other options.
        dissimilarity: how the network's RDMs are made.
        comparison: how RDMs are compared.
        recipe: "mean-rdm", "algonauts2019" or "none".
        nan_policy: of the brains' RDMs.
        projection: how many random signed sums of features to keep of each layer.
        projection_seed: the seed of their draw.
        missing: what a condition that was never shown is.
        folds: for "crossnobis".
        precision: for "crossnobis".
        kwargs: the options of `torchmetrics.Metric`.

    `update` takes `activations`, a mapping from layers to tensors (B, ...), of which other entries
    are ignored, `condition` (B,), and for "crossnobis" `fold` (B,).

    Returns:
        A dict, with axes layers (L) and targets (G), in the order given: `track_score` (), `score`,
        `score_mean_rdm`, `score_algonauts2019`, `rho`, `rho_mean_rdm`, `r2` (L, G), `best_layer`
        (G,), the index of the layer with the best score, -1 if there is none, `best_score` (G,),
        `ceiling_upper`, `ceiling_lower`, `ceiling_upper_r2`, `ceiling_lower_r2` (G,), `n_pairs`
        (L, G). NaN as in `RSA`. `best()` gives the names.

    Raises:
        ValueError: as `RSA`, and for targets of different conditions.

    References:
        Cichy et al. (2019), arXiv:1905.05675.

    Example:
        >>> import torch
        >>> from dynmetrics.rsa import LayerRSA
        >>> brain = torch.tensor([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
        >>> metric = LayerRSA(
        ...     layers=("V1", "IT"), targets={"IT": brain}, dissimilarity="euclidean", recipe="none"
        ... )
        >>> outputs = {"V1": torch.tensor([[0.0], [5.0]]), "IT": torch.tensor([[0.0], [1.0]])}
        >>> metric.update(outputs, torch.tensor([0, 1]))
        >>> metric.update({"V1": torch.tensor([[1.0]]), "IT": torch.tensor([[-2.0]])}, [2])
        >>> metric.best()
        {'IT': 'IT'}
    """

    def __init__(
        self,
        *,
        layers: Sequence[str],
        targets: Mapping[str, BrainRDMs | Tensor],
        conditions: Any = None,
        dissimilarity: str = "correlation",
        comparison: str = "spearman",
        recipe: str = "mean-rdm",
        nan_policy: str = "error",
        projection: int | None = None,
        projection_seed: int = 0,
        missing: str = "error",
        folds: Any = None,
        precision: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        named = isinstance(layers, Sequence) and all(isinstance(name, str) for name in layers)
        if isinstance(layers, str) or not named or not layers or len({*layers}) < len(layers):
            raise refuse("layers", "a sequence of different names", describe(layers))
        named = isinstance(targets, Mapping) and all(isinstance(name, str) for name in targets)
        if not named or not targets:
            raise refuse("targets", "a mapping from names to brain RDMs", describe(targets))
        super().__init__(
            brains=targets,
            layers=tuple(layers),
            conditions=conditions,
            dissimilarity=dissimilarity,
            comparison=comparison,
            recipe=recipe,
            nan_policy=nan_policy,
            projection=projection,
            projection_seed=projection_seed,
            missing=missing,
            folds=folds,
            precision=precision,
            **kwargs,
        )

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The axis letters of every entry of the result."""
        axes: dict[str, tuple[str, ...]] = {"track_score": ()}
        axes |= dict.fromkeys(_TABLES, ("L", "G"))
        axes |= {"best_layer": ("G",), "best_score": ("G",)}
        axes |= dict.fromkeys(_CEILINGS, ("G",))
        return axes | {"n_pairs": ("L", "G")}

    def compute(self) -> dict[str, Tensor]:
        """The tables of everything seen."""
        names = list(self.layers or ())
        models = torch.cat([self.rdms(i) for i in range(len(names))])
        columns: dict[str, list[Tensor]] = {name: [] for name in (*_TABLES, *_CEILINGS, "n_pairs")}
        for target in self.targets.values():
            found = target.compare(models, self.leaves_out_missing)
            cells = [scores(*over_window(layer), self.recipe) for layer in found]
            for entry in _TABLES:
                columns[entry].append(torch.stack([cell[entry] for cell in cells]))
            columns["n_pairs"].append(torch.stack([layer.pairs for layer in found]))
            upper, lower = target.ceiling.upper.mean(1), target.ceiling.lower.mean(1)
            columns["ceiling_upper"].append(upper.mean())
            columns["ceiling_lower"].append(lower.mean())
            columns["ceiling_upper_r2"].append(upper.square().mean())
            columns["ceiling_lower_r2"].append(lower.square().mean())
        self.warn_of_ceilings()
        result = {name: torch.stack(parts, -1) for name, parts in columns.items()}
        result |= self._best(result)
        return {name: result[name] for name in self.axes}

    def _best(self, result: dict[str, Tensor]) -> dict[str, Tensor]:
        """The best layer of each target, and the score of the track that it gives."""
        known = result["score"].nan_to_num(-torch.inf)
        best = known.argmax(0, keepdim=True)
        score = result["score"].gather(0, best)[0]
        explained = {
            "mean-rdm": (result["rho_mean_rdm"].square(), result["ceiling_upper"]),
            "algonauts2019": (result["r2"], result["ceiling_upper_r2"]),
            "none": (result["r2"], torch.ones_like(result["ceiling_upper"])),
        }
        values, ceiling = explained[self.recipe]
        track = percent(values.gather(0, best)[0].mean(), ceiling.mean())
        nowhere = (known == -torch.inf).all(0)
        return {
            "track_score": torch.where(score.isnan().any(), torch.nan, track),
            "best_layer": best[0].masked_fill(nowhere, -1),
            "best_score": score,
        }

    def best(self) -> dict[str, str | None]:
        """The name of the best layer of each target; None where no layer has a score."""
        names = list(self.layers or ())
        indices = self.compute()["best_layer"].tolist()
        pairs = zip(self.targets, indices, strict=True)
        return {target: names[i] if i >= 0 else None for target, i in pairs}
