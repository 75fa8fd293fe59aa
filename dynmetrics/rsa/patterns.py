"""PatternMetric: the mean pattern of every condition, streamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_choice,
    check_positive_int,
    check_tensor,
    describe,
    refuse,
)
from dynmetrics.core.metric import Result, StreamingMetric
from dynmetrics.core.state import BY_DATA, GROWS, Size, common_shape, padded
from dynmetrics.rsa.conditions import Conditions, listed, parsed_ids
from dynmetrics.rsa.dissimilarity import (
    DISSIMILARITIES,
    check_precision,
    rdm_of_sums,
    rounding_of,
)
from dynmetrics.rsa.projection import SignProjection, check_seed, deviations

Ids: TypeAlias = Tensor | Sequence[int] | Sequence[str]
_LARGEST_FOLD = 9999


class PatternMetric(StreamingMetric):
    """Sums and counts of activations by condition, for one or several layers.

    The states add up, so any order, any split over ranks and uneven repeats give the same means:
    `sums` (T, F, K, D) for each layer, `counts` (T, F, K) for all; T is 1 without time, F is 1
    without folds. `precision_of_input` is the coarsest rounding of the activations seen. Ids and
    folds in tensors that are not known are counted in `unknown`, with the range of the ids.
    """

    counts: Tensor
    unknown: Tensor
    unknown_range: Tensor
    precision_of_input: Tensor

    def __init__(
        self,
        *,
        conditions: Any,
        dissimilarity: str,
        missing: str,
        projection: int | None,
        projection_seed: int,
        folds: Any,
        precision: Tensor | None,
        layout: str = "B",
        layers: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        check_choice("dissimilarity", dissimilarity, DISSIMILARITIES)
        check_choice("missing", missing, ("error", "nan"))
        check_precision(precision, dissimilarity)
        if projection is not None:
            check_positive_int("projection", projection)
            if dissimilarity in ("cityblock", "crossnobis"):
                raise refuse("projection", f"None for {dissimilarity!r}", describe(projection))
        check_seed("projection_seed", projection_seed)
        if folds is not None and dissimilarity != "crossnobis":
            raise refuse("folds", f"None for {dissimilarity!r}", describe(folds))
        super().__init__(**kwargs)
        self.conditions = Conditions("conditions", conditions)
        if len(self.conditions) < 2:
            raise refuse("conditions", "at least two ids", describe(conditions))
        self.folds = None if folds is None else Conditions("folds", folds)
        if self.folds is not None and len(self.folds) < 2:
            raise refuse("folds", "at least two folds", describe(folds))
        self.dissimilarity = dissimilarity
        self.missing = missing
        self.layout = layout
        self.layers = layers
        self.noise_precision = precision
        self.project = None if projection is None else SignProjection(projection, projection_seed)
        self._of_one_batch = False
        crossvalidated = dissimilarity == "crossnobis"
        known_folds: Size = GROWS if self.folds is None else len(self.folds)
        axes: tuple[Size, ...] = (
            1 if layout == "B" else GROWS,
            known_folds if crossvalidated else 1,
            len(self.conditions),
        )
        self.sums_of = ["sums"] if layers is None else [f"sums_{i}" for i in range(len(layers))]
        for name in self.sums_of:
            self.add_sum(name, (*axes, BY_DATA))
            if projection is not None:
                # No numbers, only a shape: how wide the patterns were before their projection.
                self.add_counts(f"width_of_{name}", (0, BY_DATA))
        self.add_counts("counts", axes)
        self.add_counts("unknown", (2,))
        self.add_max("unknown_range", (2,), torch.int64)
        self.add_max("precision_of_input", (), torch.float64)

    # ---------------------------------------------------------------------------- update

    def update(self, activations: Any, condition: Ids, fold: Ids | None = None) -> None:
        """Add presentations: activations (B, ...) or with time, condition (B,), fold (B,)."""
        patterns = [self._checked(*pair) for pair in self._by_layer(activations)]
        times, batch = patterns[0].shape[:2]
        for values in patterns:
            check_precision(self.noise_precision, self.dissimilarity, values.shape[-1])
            if values.shape[:2] != (times, batch):
                expected = f"{batch} rows, and {times} timesteps, in every layer"
                raise refuse("activations", expected, f"{values.shape[1]} and {values.shape[0]}")
        rows, known = self.conditions.rows("condition", condition, batch, self.device)
        folds, n_folds, known_fold = self._fold_rows(fold, batch)
        if not batch:
            return
        changed = self._strays(condition, known, known_fold)
        valid = known if known_fold is None else known_fold if known is None else known & known_fold
        roundings = [rounding_of(value.dtype) for _, value in self._by_layer(activations)]
        changed["precision_of_input"] = self.precision_of_input.clamp(min=max(roundings))
        shape = times, n_folds, len(self.conditions)
        index = (folds * shape[2] + rows).unsqueeze(0)
        index = index + shape[1] * shape[2] * torch.arange(times, device=self.device).unsqueeze(1)
        ones = torch.ones_like(index) if valid is None else valid.to(torch.int64).expand_as(index)
        changed["counts"] = self._added("counts", shape, index, ones)
        for name, values, rounding in zip(self.sums_of, patterns, roundings, strict=True):
            if self.project is not None:
                width = self.counts.new_zeros((0, values.shape[-1]))
                changed[f"width_of_{name}"] = self._widened(f"width_of_{name}", width)
                if self.dissimilarity == "correlation":
                    # A projection would blur each pattern's own mean.
                    values = deviations(values, rounding)
                values = self.project(values)
            if valid is not None:
                # NaN times 0 would still be NaN.
                values = values.masked_fill(~valid.view(1, -1, 1), 0.0)
            changed[name] = self._added(name, (*shape, values.shape[-1]), index, values)
        # Whole new states, for an increment of the size of `sums` would double the memory.
        self.__dict__.update(changed)

    def _by_layer(self, activations: Any) -> list[tuple[str, Any]]:
        if self.layers is None:
            return [("activations", activations)]
        if not isinstance(activations, Mapping) or set(self.layers) - set(activations):
            expected = f"a mapping with the entries {list(self.layers)}"
            raise refuse("activations", expected, describe(activations))
        return [(f"activations[{layer!r}]", activations[layer]) for layer in self.layers]

    def _checked(self, argument: str, value: Any) -> Tensor:
        """Activations as (T, B, D) in float64."""
        check_tensor(argument, value, self.device)
        axes = len(self.layout)
        if value.ndim <= axes or 0 in value.shape[1 if axes == 1 else 2 :]:
            letters = ", ".join(self.layout)
            raise refuse(argument, f"the shape ({letters}, ...) with features", describe(value))
        values = value.flatten(axes)
        values = values.unsqueeze(0) if axes == 1 else values
        values = values.transpose(0, 1) if self.layout == "BT" else values
        if not values.shape[0]:
            raise refuse(argument, "at least one timestep", describe(value))
        result: Tensor = values.to(torch.float64)
        return result

    def _fold_rows(self, fold: Any, batch: int) -> tuple[Tensor, int, Tensor | None]:
        """The fold of each presentation, the number of folds, and which are known."""
        if self.dissimilarity != "crossnobis":
            if fold is not None:
                raise refuse("fold", f"None for {self.dissimilarity!r}", describe(fold))
            return torch.zeros(batch, dtype=torch.int64, device=self.device), 1, None
        if fold is None:
            raise refuse("fold", f"the fold of each of {batch} presentations", "None")
        if self.folds is not None:
            rows, known = self.folds.rows("fold", fold, batch, self.device)
            return rows, len(self.folds), known
        if isinstance(fold, Tensor):
            check_tensor("fold", fold, self.device if fold.device.type != "cpu" else None)
            # The number of folds is the shape of a state: without `folds` it has to be read.
            fold = fold.detach().cpu().numpy()
        ids = () if isinstance(fold, int) else parsed_ids("fold", fold)
        # Each is a part of the state: a date among them would take all memory.
        fitting = all(isinstance(i, int) and i <= _LARGEST_FOLD for i in ids)
        if len(ids) != batch or isinstance(fold, int) or not fitting:
            expected = f"{batch} integers from 0 to {_LARGEST_FOLD} (others by `folds`)"
            raise refuse("fold", expected, describe(fold))
        rows = torch.tensor(ids, dtype=torch.int64).to(self.device, non_blocking=True)
        highest = max((int(i) for i in ids), default=-1)
        return rows, max(highest + 1, self.counts.shape[1]), None

    def _strays(
        self, condition: Any, known: Tensor | None, known_fold: Tensor | None
    ) -> dict[str, Tensor]:
        """The states that count unknown ids and folds."""
        changed = {}
        if known is not None:
            given = condition.to(self.device, torch.int64, non_blocking=True)
            # The complement turns the smallest into the largest, without overflow.
            strange = torch.stack([given, ~given]).masked_fill(known, torch.iinfo(torch.int64).min)
            changed["unknown_range"] = torch.maximum(self.unknown_range, strange.amax(1))
            changed["unknown"] = self.unknown + torch.stack([(~known).sum(), known.sum() * 0])
        if known_fold is not None:
            strays = (~known_fold).sum()
            before = changed.get("unknown", self.unknown)
            changed["unknown"] = before + torch.stack([strays * 0, strays])
        return changed

    def _widened(self, name: str, width: Tensor) -> Tensor:
        """The state that remembers the number of features."""
        self._check_width(getattr(self, name), width.shape[-1])
        return width

    def _check_width(self, state: Tensor, features: int) -> None:
        if state.shape[-1] not in (features, 0):
            expected = f"{state.shape[-1]} features, as before"
            raise refuse("activations", expected, f"{features}")

    def _added(self, name: str, shape: tuple[int, ...], index: Tensor, values: Tensor) -> Tensor:
        """A new state: the present one, and `values` (T, B, ...) added to its rows `index`."""
        spec, state = self.state_specs[name], getattr(self, name)
        features = shape[3:]
        if features:
            self._check_width(state, features[0])
        joint = common_shape(spec, [tuple(state.shape), shape], "activations")
        fresh = padded(spec, state, joint)
        fresh = state.clone() if fresh is state else fresh
        rows = fresh.view(-1, *joint[3:])
        rows.index_add_(0, index.flatten(), values.flatten(0, 1).to(fresh.dtype))
        return fresh

    # --------------------------------------------------------------------------- results

    def forward(self, *args: Any, **kwargs: Any) -> Result:
        """Accumulate a batch and return the value of this batch alone.

        A batch rarely has all conditions: here those that it lacks are NaN, never an error.
        """
        self.__dict__["_of_one_batch"] = True
        try:
            return super().forward(*args, **kwargs)
        finally:
            self.__dict__["_of_one_batch"] = False

    @property
    def leaves_out_missing(self) -> bool:
        """Whether conditions that were never shown are left out of comparisons."""
        return self.missing == "nan" or self._of_one_batch

    def rdms(self, layer: int = 0) -> Tensor:
        """The RDMs (T, K, K) of a layer, after a check that they are what was asked for."""
        self._check_ids()
        state: Tensor = getattr(self, self.sums_of[layer])
        times, size = state.shape[0], len(self.conditions)
        if not state.shape[3]:
            return state.new_full((times, size, size), torch.nan, dtype=torch.float64)
        method = self.dissimilarity
        if self.project is not None and method == "correlation":
            # The sums are of deviations already, so the cosine is the correlation.
            method = "cosine"
        eps = max(float(self.precision_of_input), torch.finfo(torch.float64).eps)
        precision = self.noise_precision
        precision = None if precision is None else precision.to(self.device)
        found = [
            rdm_of_sums(state[t], self.counts[t], method, eps, precision) for t in range(times)
        ]
        rdms = torch.stack(found) if found else state.new_zeros((0, size, size))
        self._warn_of_undefined(rdms)
        return rdms

    def _check_ids(self) -> None:
        strays, stray_folds = self.unknown.tolist()
        if strays:
            largest, complement = self.unknown_range.tolist()
            ends = dict.fromkeys((~complement, largest))
            raise refuse(
                "condition",
                f"ids among {listed(self.conditions.ids)}",
                f"{strays} presentations of unknown ids: {' to '.join(map(str, ends))}",
            )
        if stray_folds and self.folds is not None:
            known = f"folds among {listed(self.folds.ids)}"
            raise refuse("fold", known, f"{stray_folds} presentations of unknown folds")
        presentations = self.counts.sum((0, 1))
        absent = (presentations == 0).tolist()
        if any(absent) and not all(absent) and not self.leaves_out_missing:
            names = [i for i, lacks in zip(self.conditions.ids, absent, strict=True) if lacks]
            raise refuse("condition", "every condition (see missing)", f"none of {listed(names)}")

    def _warn_of_undefined(self, rdms: Tensor) -> None:
        shown = self.counts.sum(1) > 0
        lost = (rdms.isnan().all(-1) & shown).any(0).tolist()
        names = [i for i, undefined in zip(self.conditions.ids, lost, strict=True) if undefined]
        if names and not self._of_one_batch:
            self.warn_once(
                "undefined",
                f"conditions without a {self.dissimilarity} distance (constant patterns, NaN, or "
                f"too few folds), NaN in the RDM: {listed(names)}",
            )
