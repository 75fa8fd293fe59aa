"""Names of results, and the numbers among them that a logger can take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from dynmetrics.core.checks import refuse
from dynmetrics.core.metric import StreamingMetric


@dataclass(frozen=True)
class Naming:
    """`{prefix}{name}` is a metric's headline, `{prefix}{name}_{entry}` the rest of its result."""

    prefix: str
    postfix: str

    def key(self, name: str, entry: str = "") -> str:
        """The name of one result."""
        return f"{self.prefix}{name}{'_' if entry else ''}{entry}{self.postfix}"

    def keys(self, name: str, metric: Metric, entries: Sequence[str]) -> list[str]:
        """The names of a dict of results, of which only our own metrics have a headline."""
        headline = entries[0] if isinstance(metric, StreamingMetric) and entries else None
        return [self.key(name, "" if entry == headline else entry) for entry in entries]

    def axes(self, metrics: Mapping[str, Metric]) -> list[tuple[str, tuple[str, ...]]]:
        """Names and axes of all results that are known before there is data."""
        pairs: list[tuple[str, tuple[str, ...]]] = []
        for name, metric in metrics.items():
            axes = metric.axes if isinstance(metric, StreamingMetric) else ()
            if isinstance(axes, dict):
                pairs += zip(self.keys(name, metric, list(axes)), axes.values(), strict=True)
            else:
                pairs.append((self.key(name), axes))
        return pairs

    def letters(self, metrics: Mapping[str, Metric]) -> dict[str, str]:
        """The letters that number the entries of vectors: t over timesteps, c over classes."""
        return {key: axes[0].lower() for key, axes in self.axes(metrics) if len(axes) == 1}

    def check(self, metrics: Mapping[str, Metric]) -> None:
        """Refuse metrics of which two would report under one name."""
        keys = [key for key, _ in self.axes(metrics)]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise refuse("metrics", "results of different names", f"{twice} twice")

    def flat(self, values: Mapping[str, Any], metrics: Mapping[str, Metric]) -> dict[str, Tensor]:
        """The results of all metrics in one dict."""
        results: dict[str, Tensor] = {}
        for name, value in values.items():
            entries = dict(value) if isinstance(value, Mapping) else {"": value}
            keys = self.keys(name, metrics[name], list(entries))
            for key, part in zip(keys, entries.values(), strict=True):
                if key in results:
                    raise refuse("metrics", "results of different names", f"{key!r} twice")
                results[key] = part
        return results


def scalar_entries(
    results: Mapping[str, Any], letters: Mapping[str, str], curves: bool
) -> dict[str, float]:
    """The scalars among `results` and, with `curves`, the numbered entries of its vectors."""
    tensors = {name: torch.as_tensor(value) for name, value in results.items()}
    chosen = {n: v for n, v in tensors.items() if v.ndim == 0 or (curves and v.ndim == 1)}
    numbers = _to_host(list(chosen.values()))
    scalars: dict[str, float] = {}
    for name, value in chosen.items():
        if value.ndim == 0:
            scalars[name] = next(numbers)
            continue
        letter = letters.get(name, "i")
        for i in range(len(value)):
            scalars[f"{name}_{letter}{i:02d}"] = next(numbers)
    return scalars


def _to_host(tensors: Sequence[Tensor]) -> Iterator[float]:
    """The numbers of all tensors in order, with one copy for each device."""
    by_device: dict[torch.device, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        by_device[tensor.device].append(tensor.detach().reshape(-1).to(torch.float64))
    numbers = {device: iter(torch.cat(parts).tolist()) for device, parts in by_device.items()}
    for tensor in tensors:
        for _ in range(tensor.numel()):
            yield next(numbers[tensor.device])
