"""How strongly layers respond over time, without their activations being kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import (
    check_flag,
    check_positive_int,
    check_tensor,
    describe,
    refuse,
    several_of,
)
from dynmetrics.core.metric import Axes, StreamingMetric
from dynmetrics.core.moments import fold_moments, moment_mean
from dynmetrics.core.state import BY_DATA, GROWS
from dynmetrics.temporal.grouping import (
    class_of_sample,
    mean_and_deviation,
    moments_over_samples,
)
from dynmetrics.temporal.inputs import label_inputs
from dynmetrics.temporal.layer_names import CODE_LENGTH, NAME_BYTES, decoded, encoded

MEASURES = ("response_avg", "response_std", "spatial_variance", "feature_variance")


class LayerResponse(StreamingMetric):
    r"""Average response and variability of layers at every timestep, a first stand-in for ECoG.

    Four numbers describe the activations of a layer in one sample at one timestep; the metric is
    their mean over samples. "response_avg" is the mean of the absolute activations over channels
    and space, "response_std" their standard deviation; "spatial_variance" the variance of the
    signed activations over space, averaged over channels, "feature_variance" that over channels,
    averaged over space. All variances are unbiased. Only running means and deviations are kept, so
    what took files of activations takes (layers x measures x T) numbers.

    Args:
        measures: which of the four to report, in this order.
        absolute: take absolute values for the first two, as DynVision does. After a rectifying
            nonlinearity it makes no difference.
        num_classes: C; gives every curve per class of the first label of the samples, (C, T).
        details: adds for every curve the unbiased standard deviation over samples, `..._std`, the
            number of samples behind it, `..._n`, and with `num_classes` also `..._no_class` (T,),
            the mean over samples whose first label is no class.
        kwargs: `network_output`, and the options of `torchmetrics.Metric`.

    `update` takes `activations`, (B, T, channels) or (B, T, channels, ...) with any axes of space,
    or a mapping from the names of layers to such tensors, always the same names, as from an
    `ActivationRecorder`; and, with `num_classes`, `target`, integer labels (B,) or (B, T'),
    negative where there is none. T may differ between layers, calls and ranks. Half precision is
    read as float32.

    Returns:
        A dict: for every layer and measure `{layer}_{measure}` (T,), `{measure}` for a bare tensor;
        in units of the activation, or their square for variances. NaN where there is no sample, and
        where a variance is undefined: over one channel, or over a map of one pixel. Activations
        without axes of space have a spatial variance of 0.

    Raises:
        ValueError: for options, shapes or names that do not fit.

    References:
        DynVision's layer measures, met to 1e-5; they are computed there from float16 copies.

    Example:
        >>> import torch
        >>> from dynmetrics.temporal import LayerResponse
        >>> metric = LayerResponse(measures=("response_avg",))
        >>> metric.update({"V1": torch.ones(2, 3, 8, 4, 4), "IT": torch.ones(2, 3, 16)})
        >>> metric.update({"V1": -torch.ones(1, 2, 8, 4, 4), "IT": torch.zeros(1, 2, 16)})
        >>> metric.compute()["IT_response_avg"]
        tensor([0.6667, 0.6667, 1.0000], dtype=torch.float64)
    """

    higher_is_better = None
    moments: Tensor
    names: Tensor

    def __init__(
        self,
        *,
        measures: Sequence[str] = MEASURES,
        absolute: bool = True,
        num_classes: int | None = None,
        details: bool = False,
        **kwargs: Any,
    ) -> None:
        measures = several_of("measures", measures, MEASURES)
        check_flag("absolute", absolute)
        check_flag("details", details)
        if num_classes is not None:
            check_positive_int("num_classes", num_classes)
        super().__init__(**kwargs)
        self.measures = measures
        self.absolute = absolute
        self.num_classes = num_classes
        self.details = details
        self._decoded: tuple[Tensor, tuple[str, ...]] | None = None
        groups = () if num_classes is None else (num_classes + 1,)
        self.add_folded("moments", (3, BY_DATA, len(measures), GROWS, *groups), fold_moments)
        self.add_max("names", (BY_DATA, CODE_LENGTH), torch.int16)

    @property
    def axes(self) -> Axes:
        """The axis letters of every entry; layers are known once there is data."""
        curve = ("T",) if self.num_classes is None else ("C", "T")
        axes: dict[str, tuple[str, ...]] = {}
        for entry in self._entries(self._layers()):
            axes[entry] = curve
            if self.details:
                axes.update({f"{entry}_std": curve, f"{entry}_n": curve})
                if self.num_classes is not None:
                    axes[f"{entry}_no_class"] = ("T",)
        return axes

    def update(
        self, activations: Tensor | Mapping[str, Tensor], target: Tensor | None = None
    ) -> None:
        """Add a batch: activations (B, T, ...), or by layer; labels (B,) or (B, T')."""
        layers = checked_layers(activations, self.device)
        names = self._known_layers() or tuple(layers)
        if set(names) != set(layers):
            raise refuse("activations", f"the layers {list(names)}", f"{list(layers)}")
        groups = None if self.num_classes is None else self._groups(layers, target)
        if all(layer.shape[0] == 0 or layer.shape[1] == 0 for layer in layers.values()):
            return
        parts = [
            response_moments(layers[name], self.measures, self.absolute, groups, self.num_classes)
            for name in names
        ]
        super().accumulate(moments=stacked_layers(parts), names=encoded(names, self.device))
        self._decoded = self.names, names

    def compute(self) -> dict[str, Tensor]:
        """The curves over everything seen."""
        moments = self.moments
        if not len(self.names):
            # Without any data there is still one result for each measure.
            moments = moments.new_zeros((3, 1, *moments.shape[2:]))
        moments = moments.flatten(1, 2)
        table = moments if self.num_classes is None else moments[..., :-1].transpose(-1, -2)
        mean, deviation, n = mean_and_deviation(table)
        result: dict[str, Tensor] = {}
        for i, entry in enumerate(self._entries(self._layers())):
            result[entry] = mean[i]
            if self.details:
                result.update({f"{entry}_std": deviation[i], f"{entry}_n": n[i]})
                if self.num_classes is not None:
                    result[f"{entry}_no_class"] = moment_mean(moments[:, i, :, -1])
        return result

    def _layers(self) -> tuple[str, ...]:
        """The layers seen so far, the nameless one before any."""
        # A state is never changed in place, so the names once read of it stay right.
        if self._decoded is None or self._decoded[0] is not self.names:
            self._decoded = self.names, decoded(self.names)
        return self._decoded[1] or ("",)

    def accumulate(self, **increments: Any) -> None:
        """Combine with another accumulation: layers of the same names, in this metric's order."""
        known, codes = self._known_layers(), increments.get("names")
        if known and isinstance(codes, Tensor) and len(codes):
            theirs = decoded(codes)
            if set(theirs) != set(known) or len(theirs) != len(known):
                raise refuse("activations", f"the layers {list(known)}", f"{list(theirs)}")
            order = [theirs.index(name) for name in known]
            increments["names"] = codes[order]
            increments["moments"] = increments["moments"][:, order]
        super().accumulate(**increments)

    def _known_layers(self) -> tuple[str, ...] | None:
        """The layers that every batch has to bring; None before any."""
        if len(self.names):
            return self._layers()
        # `forward` puts the states aside, but not the number of updates.
        return self._decoded[1] if self._decoded and self._update_count else None

    def _entries(self, layers: tuple[str, ...]) -> list[str]:
        return [f"{layer}_{m}" if layer else m for layer in layers for m in self.measures]

    def _groups(self, layers: Mapping[str, Tensor], target: Tensor | None) -> Tensor:
        """The class (B,) of every sample."""
        assert self.num_classes is not None
        if target is None:
            raise refuse("target", "labels, for num_classes", "None")
        check_tensor("target", target)
        batch = next(iter(layers.values())).shape[0]
        steps = target.shape[1] if target.ndim == 2 else 1
        labels = label_inputs(target, None, torch.Size((batch, steps)), self.device)
        if steps == 0:
            return torch.full((batch,), self.num_classes, device=self.device)
        return class_of_sample(labels.first[:, 0], self.num_classes)


def checked_layers(activations: Any, device: torch.device | None = None) -> dict[str, Tensor]:
    """Activations by the name of the layer, all of as many samples; a bare tensor has no name."""
    layers = dict(activations) if isinstance(activations, Mapping) else {"": activations}
    for name, layer in layers.items():
        if not isinstance(name, str) or len(name.encode()) > NAME_BYTES:
            raise refuse("activations", f"names of at most {NAME_BYTES} letters", describe(name))
        check_tensor("activations", layer, device)
        if layer.ndim < 3 or 0 in layer.shape[2:]:
            of_layer = f" for the layer {name!r}" if name else ""
            raise refuse("activations", f"(B, T, channels, ...){of_layer}", describe(layer))
    sizes = {len(layer) for layer in layers.values()}
    if len(sizes) != 1 or (isinstance(activations, Mapping) and "" in layers):
        raise refuse("activations", "named layers of equally many samples", describe(activations))
    return layers


def response_rows(activations: Tensor, measures: Sequence[str], absolute: bool = True) -> Tensor:
    """The measures (M, B, T) of every sample at every timestep of activations (B, T, ...)."""
    x = activations if activations.is_floating_point() else activations.float()
    x = x.float() if x.element_size() < 4 else x
    values = []
    for measure in measures:
        if measure == "spatial_variance":
            has_space = x.ndim > 3
            values.append(
                _variance(x.flatten(3), -1).mean(-1) if has_space else x.new_zeros(x.shape[:2])
            )
        elif measure == "feature_variance":
            values.append(_variance(x, 2).flatten(2).mean(-1) if x.ndim > 3 else _variance(x, 2))
        else:
            flat = x.flatten(2).abs() if absolute else x.flatten(2)
            average = measure == "response_avg"
            values.append(flat.mean(-1) if average else _variance(flat, -1).sqrt())
    return torch.stack(values)


def _variance(x: Tensor, dim: int) -> Tensor:
    """The unbiased variance, NaN over a single value (about which torch would warn)."""
    if x.shape[dim] < 2:
        return torch.full_like(x.select(dim, 0), torch.nan)
    return x.var(dim, correction=1)


def response_moments(
    activations: Tensor,
    measures: Sequence[str],
    absolute: bool = True,
    groups: Tensor | None = None,
    num_classes: int | None = None,
) -> Tensor:
    """What a batch of one layer adds: moments (3, M, T), or (3, M, T, C + 1) by class."""
    values = response_rows(activations, measures, absolute)
    if groups is None:
        return moments_over_samples(values)
    return moments_over_samples(values, None, groups, (num_classes or 0) + 1)


def stacked_layers(parts: Sequence[Tensor]) -> Tensor:
    """The moments of layers (3, M, T, ...) as one (3, L, M, T, ...), short ones with no counts."""
    longest = max(part.shape[2] for part in parts)
    padded = []
    for part in parts:
        missing = part.new_zeros((*part.shape[:2], longest - part.shape[2], *part.shape[3:]))
        padded.append(torch.cat([part, missing], dim=2))
    return torch.stack(padded, dim=1)


def layer_response(
    activations: Tensor | Mapping[str, Tensor], target: Tensor | None = None, **options: Any
) -> dict[str, Tensor]:
    """`LayerResponse` of one batch: the same inputs, options and result.

    Example:
        >>> import torch
        >>> layer_response(torch.tensor([[[1.0, -3.0]]]))["response_avg"]
        tensor([2.], dtype=torch.float64)
    """
    metric = LayerResponse(sync_on_compute=False, **options)
    metric.to(next(iter(checked_layers(activations).values())).device)
    metric.update(activations, target)
    return metric.compute()
