"""The members of a suite: their names, and the inputs that they take."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from torchmetrics import Metric
from torchmetrics.metric import CompositionalMetric

from dynmetrics.core.checks import describe, refuse

_NAME = re.compile(r"[A-Za-z0-9_\-]+")
_OPEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameters_of(metric: Metric) -> dict[str, bool]:
    """The inputs that a metric's `update` names, and whether it needs them."""
    if isinstance(metric, CompositionalMetric):
        # An entry of a result, or arithmetic with metrics, takes what its parts take.
        parts = [p for p in (metric.metric_a, metric.metric_b) if isinstance(p, Metric)]
        known: dict[str, bool] = {}
        for part in parts:
            for name, needed in parameters_of(part).items():
                known[name] = needed or known.get(name, False)
        return known
    parameters = metric._update_signature.parameters.values()
    return {p.name: p.default is p.empty for p in parameters if p.kind not in _OPEN}


def inputs_taken(metric: Metric, inputs: Mapping[str, Any]) -> list[str]:
    """Which of the inputs a metric is to be given."""
    if isinstance(metric, CompositionalMetric):
        known = parameters_of(metric)
        return [name for name in inputs if name in known]
    # Wrappers of torchmetrics take everything and know what the wrapped metric takes.
    return list(metric._filter_kwargs(**inputs))


def named_members(metrics: Mapping[str, Metric] | Sequence[Metric]) -> dict[str, Metric]:
    """Metrics by name, those of a sequence by their classes' names."""
    if isinstance(metrics, Mapping):
        named = dict(metrics)
    elif isinstance(metrics, Sequence):
        named = {type(metric).__name__: metric for metric in metrics}
        if len(named) < len(metrics):
            raise refuse("metrics", "a mapping where classes repeat", f"{[*named]} from a sequence")
    else:
        raise refuse("metrics", "a mapping or a sequence of metrics", describe(metrics))
    for name, metric in named.items():
        if not isinstance(metric, Metric):
            raise refuse(f"metrics[{name!r}]", "a metric", describe(metric))
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise refuse("metrics", "names of letters, digits, _ and -", describe(name))
        if hasattr(nn.ModuleDict, name):
            raise refuse("metrics", "names that torch's modules do not use", describe(name))
    # Metrics can hold metrics: one that is reached twice would also be updated twice.
    held = [id(m) for metric in named.values() for m in metric.modules() if isinstance(m, Metric)]
    if len(set(held)) < len(held):
        raise refuse("metrics", "different objects, for states are never shared", "one twice")
    return named


def checked_affix(argument: str, affix: str | None) -> str:
    """A prefix or postfix, empty for None."""
    if affix is not None and not isinstance(affix, str):
        raise refuse(argument, "a string or None", describe(affix))
    return affix or ""
