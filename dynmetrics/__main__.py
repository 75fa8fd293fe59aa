"""`python -m dynmetrics`: list the metrics, show one, and score arrays that another program saved.

python -m dynmetrics list
python -m dynmetrics show TemporalAccuracy
python -m dynmetrics score TemporalAccuracy --preds run.npz:logits --target run.npz:labels \
        --option top_k=1,5 --option confidence=0.95
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import math
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import dynmetrics
from dynmetrics.core import StreamingMetric
from dynmetrics.core.arrays import load_array
from dynmetrics.core.checks import describe, refuse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error of the user's ends in one line and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m dynmetrics", description=__doc__.split(":")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="all metrics, a line each")
    show = commands.add_parser("show", help="what a metric measures, and its options")
    show.add_argument("metric")
    score = commands.add_parser("score", help="compute a metric of saved arrays; JSON out")
    score.add_argument("metric")
    score.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    score.add_argument(
        "--batch", type=int, help="samples at a time, where the first axis is theirs"
    )
    known, inputs = parser.parse_known_args(arguments)
    try:
        if known.command == "list":
            print(listing())
        elif known.command == "show":
            print(inspect.getdoc(_metric_class(known.metric)))
        else:
            options = dict(_option(text) for text in known.option)
            arrays = _arrays(inputs)
            results = scored(_metric_class(known.metric)(**options), arrays, known.batch)
            print(json.dumps({k: _plain(v.tolist()) for k, v in results.items()}, indent=1))
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"dynmetrics {known.command}: {error}", file=sys.stderr)
        return 2
    return 0


def metric_classes() -> dict[str, type[StreamingMetric]]:
    """All metrics by name."""
    classes = {name: getattr(dynmetrics, name) for name in dynmetrics.__all__}
    return {
        name: cls
        for name, cls in sorted(classes.items())
        if inspect.isclass(cls) and issubclass(cls, StreamingMetric) and cls is not StreamingMetric
    }


def listing() -> str:
    """Names with the first line of what they measure."""
    classes = metric_classes()
    width = max(map(len, classes))
    lines = {name: (inspect.getdoc(cls) or "").split("\n")[0] for name, cls in classes.items()}
    return "\n".join(f"{name.ljust(width)}  {line}" for name, line in lines.items())


def scored(
    metric: StreamingMetric, arrays: dict[str, Tensor], batch: int | None = None
) -> dict[str, Tensor]:
    """The results of a metric fed with arrays, all at once or `batch` rows at a time."""
    if batch is None:
        metric.update(**arrays)
        return named(metric.compute())
    if batch < 1:
        raise refuse("--batch", "at least 1", describe(batch))
    sizes = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if not sizes or len(set(sizes.values())) > 1:
        raise refuse("arrays", "arrays with the same number of samples", f"{sizes}")
    for start in range(0, next(iter(sizes.values())), batch):
        metric.update(**{name: array[start : start + batch] for name, array in arrays.items()})
    return named(metric.compute())


def named(result: Tensor | dict[str, Tensor]) -> dict[str, Tensor]:
    """A result as a dict."""
    return {"value": result} if isinstance(result, Tensor) else result


def _metric_class(name: str) -> type[StreamingMetric]:
    classes = metric_classes()
    if name not in classes:
        raise refuse("metric", f"one of {', '.join(classes)}", describe(name))
    return classes[name]


def _option(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise refuse("--option", "NAME=VALUE", describe(text))
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _arrays(inputs: list[str]) -> dict[str, Tensor]:
    """`--preds FILE[:KEY]` and so on; masks and other booleans keep their type."""
    if len(inputs) % 2 or not all(flag.startswith("--") for flag in inputs[::2]):
        raise refuse("inputs", "--NAME FILE[:KEY] for every input", describe(" ".join(inputs)))
    pairs = zip(inputs[::2], inputs[1::2], strict=True)
    return {flag[2:].replace("-", "_"): torch.as_tensor(load_array(path)) for flag, path in pairs}


def _plain(value: Any) -> Any:
    """NaN and infinities as null, for JSON knows neither."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main())
