"""MetricSuite: named metrics that share inputs, one synchronisation and one set of results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric

from dynmetrics.core.checks import describe, refuse, select_output
from dynmetrics.core.exchange import exchange_for
from dynmetrics.core.members import (
    checked_affix,
    inputs_taken,
    named_members,
    parameters_of,
)
from dynmetrics.core.metric import StreamingMetric
from dynmetrics.core.results import Naming, scalar_entries
from dynmetrics.core.sync import can_pack, synchronise


class MetricSuite(nn.Module):
    """Several metrics, fed by name, synchronised together, with flat results.

    Each metric takes the inputs that its `update` names; an input that no metric takes is an error,
    so a mistyped mask cannot be dropped in silence. A metric with `network_output="IT"` gets the
    entry "IT" of every input that is a mapping. Metrics of torchmetrics may be members. States are
    never shared between members.

    Args:
        metrics: a mapping from names to metrics, or a sequence of metrics, named by their classes.
        prefix: put before every result's name, such as "val_".
        postfix: put after every result's name.

    Raises:
        ValueError: for names that cannot be part of a result's name, and for results of two
            metrics that would bear one name.

    Example:
        >>> import torch
        >>> from dynmetrics import MetricSuite
        >>> from dynmetrics.temporal import TemporalAccuracy
        >>> suite = MetricSuite({"accuracy": TemporalAccuracy()}, prefix="val_")
        >>> logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])  # (B, T, C)
        >>> suite.update(preds=logits, target=torch.tensor([0]))
        >>> suite.update(preds=logits, target=torch.tensor([[0, 1]]))
        >>> results = suite.compute()
        >>> results["val_accuracy_accuracy"]
        tensor([1.0000, 0.5000], dtype=torch.float64)
        >>> suite.scalars(results)
        {'val_accuracy': 0.75}
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric] | Sequence[Metric],
        *,
        prefix: str | None = None,
        postfix: str | None = None,
    ) -> None:
        super().__init__()
        self.prefix = checked_affix("prefix", prefix)
        self.postfix = checked_affix("postfix", postfix)
        named = named_members(metrics)
        for metric in named.values():
            if not isinstance(metric, StreamingMetric):
                metric.persistent(True)
        self.metrics = nn.ModuleDict(named)
        self._known_routes: dict[tuple[str, ...], dict[str, list[str]]] = {}
        self._naming().check(named)

    # ------------------------------------------------------------------------ as a mapping

    def __getitem__(self, name: str) -> Metric:
        return dict(self.items())[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    def __contains__(self, name: object) -> bool:
        return name in list(self.metrics)

    def items(self) -> list[tuple[str, Metric]]:
        """Names and metrics, in the order given."""
        return [(name, m) for name, m in self.metrics.items() if isinstance(m, Metric)]

    @property
    def higher_is_better(self) -> dict[str, bool | None]:
        """The direction of every headline, by the name of its result."""
        naming = self._naming()
        return {naming.key(name): metric.higher_is_better for name, metric in self.items()}

    @property
    def inputs(self) -> dict[str, bool]:
        """The inputs that `update` takes, and whether some metric cannot do without them."""
        taken = [parameters_of(metric) for _, metric in self.items()]
        names = sorted({name for parameters in taken for name in parameters})
        return {name: any(known.get(name) for known in taken) for name in names}

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The axis letters of every result that is known before there is data."""
        return dict(self._naming().axes(dict(self.items())))

    # ------------------------------------------------------------ update, forward, compute

    def update(self, **inputs: Any) -> None:
        """Give every metric its inputs. On an error no metric has changed.

        Raises:
            ValueError: for an input that no metric takes, and for one that a metric lacks.
        """
        routes = self._routes(inputs)
        with self._all_or_nothing():
            for name, metric in self.items():
                metric.update(**self._pick(metric, routes[name], inputs))

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        """Accumulate a batch and return the results of this batch alone."""
        routes = self._routes(inputs)
        with self._all_or_nothing():
            values = {n: m(**self._pick(m, routes[n], inputs)) for n, m in self.items()}
            return self._naming().flat(values, dict(self.items()))

    def compute(self) -> dict[str, Tensor]:
        """The results of everything seen by all ranks, after one synchronisation.

        Under `torch.distributed` every rank has to call this, also one that has seen no data.
        """
        with self.synchronised():
            values = {name: metric.compute() for name, metric in self.items()}
        return self._naming().flat(values, dict(self.items()))

    @contextmanager
    def synchronised(self) -> Generator[None, None, None]:
        """Joint states of all ranks inside the block, so that `state_dict` there is that of all.

        All members that can be packed share one synchronisation for each process group. Under
        `torch.distributed` every rank has to enter.
        """
        groups: dict[Any, dict[str, Metric]] = defaultdict(dict)
        for name, metric in self.items():
            due = metric._to_sync and not metric._is_synced and metric.distributed_available_fn()
            if due and (isinstance(metric, StreamingMetric) or can_pack(metric)):
                groups[metric.dist_sync_fn, metric.process_group][name] = metric
        members = [metric for group in groups.values() for metric in group.values()]
        flags = [(m, {k: m.__dict__[k] for k in _SYNC_FLAGS}) for m in members]
        try:
            for (function, process_group), group in groups.items():
                totals = synchronise(group, exchange_for(function, process_group))
                for metric, total in zip(group.values(), totals, strict=True):
                    metric.__dict__.update(
                        _to_sync=False, _should_unsync=False, _update_count=total
                    )
            yield
        finally:
            for metric, attributes in flags:
                if metric._is_synced:
                    metric.unsync()
                metric.__dict__.update(attributes)

    def reset(self) -> None:
        """Forget everything accumulated."""
        for metric in dict(self.items()).values():
            metric.reset()

    def scalars(
        self, results: Mapping[str, Any] | None = None, *, curves: bool = False
    ) -> dict[str, float]:
        """Numbers for a logger: the headlines and the scalar entries, in one copy to the host.

        Args:
            results: what `compute` returned; computed here if not given.
            curves: also give vectors, an entry each: `..._t00`, `..._t01` over timesteps,
                `..._c00` over classes.
        """
        results = self.compute() if results is None else results
        return scalar_entries(results, self._naming().letters(dict(self.items())), curves)

    # ---------------------------------------------------------------- copies, checkpoints

    def clone(self, prefix: str | None = None, postfix: str | None = None) -> MetricSuite:
        """A copy with its own states, under another prefix or postfix if given."""
        copy = deepcopy(self)
        copy.prefix = self.prefix if prefix is None else checked_affix("prefix", prefix)
        copy.postfix = self.postfix if postfix is None else checked_affix("postfix", postfix)
        return copy

    def merge_state(self, other: MetricSuite) -> None:
        """Add the accumulation of another suite, of the same metrics, which stays as it is.

        The way to join what processes have gathered without `torch.distributed`.
        """
        if not isinstance(other, MetricSuite):
            raise refuse("other", "a MetricSuite", describe(other))
        mine, theirs = dict(self.items()), dict(other.items())
        if list(mine) != list(theirs):
            raise refuse("other", f"a suite of {list(mine)}", f"{list(theirs)}")
        with self._all_or_nothing():
            for name, metric in mine.items():
                metric.merge_state(theirs[name])

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As in `torch.nn.Module`; a checkpoint that is refused has changed no metric."""
        with self._all_or_nothing():
            return super().load_state_dict(*args, **kwargs)

    # ---------------------------------------------------------------------------- details

    def _naming(self) -> Naming:
        return Naming(self.prefix, self.postfix)

    def _routes(self, inputs: Mapping[str, Any]) -> dict[str, list[str]]:
        """Which inputs every metric takes; it depends on their names only, so one check will do."""
        names = tuple(inputs)
        if names not in self._known_routes:
            self._known_routes[names] = self._checked_routes(inputs)
        return self._known_routes[names]

    def _checked_routes(self, inputs: Mapping[str, Any]) -> dict[str, list[str]]:
        routes = {name: inputs_taken(metric, inputs) for name, metric in self.items()}
        taken = {key for keys in routes.values() for key in keys}
        for key in inputs:
            if key not in taken:
                known = list(self.inputs)
                raise refuse("update", f"inputs among {known}", f"{key!r}, which no metric takes")
        for name, metric in self.items():
            needed = [key for key, required in parameters_of(metric).items() if required]
            lacking = [key for key in needed if key not in inputs]
            if lacking:
                raise refuse("update", f"the inputs {lacking} for {name!r}", f"{sorted(inputs)}")
        return routes

    @staticmethod
    def _pick(metric: Metric, keys: list[str], inputs: Mapping[str, Any]) -> dict[str, Any]:
        output = getattr(metric, "network_output", None)
        if output is None:
            return {key: inputs[key] for key in keys}
        return {key: select_output(key, inputs[key], output) for key in keys}

    @contextmanager
    def _all_or_nothing(self) -> Generator[None, None, None]:
        before = [(m, _attributes(m)) for m in self.modules() if isinstance(m, Metric)]
        try:
            yield
        except BaseException:
            for metric, attributes in before:
                metric.__dict__.update(attributes)
            raise


_SYNC_FLAGS = ("_to_sync", "_should_unsync", "_update_count")
_GUARDED = (*_SYNC_FLAGS, "_computed", "_forward_cache", "_enable_grad", "_is_synced", "_cache")


def _attributes(metric: Metric) -> dict[str, Any]:
    """What an update may change in `metric`. Foreign states may change in place: copy those."""
    attributes = {key: metric.__dict__[key] for key in _GUARDED}
    for name in metric._defaults:
        state = getattr(metric, name)
        if isinstance(state, list):
            state = list(state)
        elif not isinstance(metric, StreamingMetric):
            state = state.clone()
        attributes[name] = state
    return attributes
