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
import os
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import dynmetrics
from dynmetrics.core import StreamingMetric
from dynmetrics.core.arrays import load_array
from dynmetrics.core.checks import describe, refuse
from dynmetrics.core.members import parameters_of


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error of the user's ends in one line and exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m dynmetrics", description=__doc__.split(":")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="all metrics, a line each")
    show = commands.add_parser("show", help="what a metric measures, and its options")
    show.add_argument("metric")
    score = commands.add_parser(
        "score", help="compute a metric of saved arrays; JSON out",
        epilog="Every other --NAME FILE[:KEY], or --NAME=FILE[:KEY], is an input of the metric.",
        allow_abbrev=False,  # the beginning of an option may be the name of an input
    )  # fmt: skip
    score.add_argument("metric")
    score.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    score.add_argument("--batch", help="samples at a time, where the first axis is theirs")
    known, others = parser.parse_known_args(arguments)
    try:
        if known.command == "score":
            print(json.dumps(_scores(known, others), indent=1))
        elif others:
            raise refuse("arguments", f"none besides those of {known.command}", " ".join(others))
        elif known.command == "show":
            print(inspect.getdoc(_metric_class(known.metric)))
        else:
            print(listing())
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads, `head` say, has enough; Python would complain again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, TypeError, OSError, ImportError, RuntimeError, IndexError) as error:
        print(f"dynmetrics {known.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _scores(known: argparse.Namespace, inputs: list[str]) -> dict[str, Any]:
    metric = _metric(_metric_class(known.metric), known.option)
    results = scored(metric, _arrays(inputs), _batch_size(known.batch))
    return {name: _plain(value.tolist()) for name, value in results.items()}


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
    taken = parameters_of(metric)
    lacking = [name for name, needed in taken.items() if needed and name not in arrays]
    if lacking or not arrays.keys() <= taken.keys():
        names = [name if needed else f"{name} if wanted" for name, needed in taken.items()]
        raise refuse("inputs", ", ".join(names), ", ".join(arrays) or "none")
    if batch is None:
        metric.update(**arrays)
        return named(metric.compute())
    if batch < 1:
        raise refuse("--batch", "at least 1", describe(batch))
    sizes = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
    if not all(array.ndim for array in arrays.values()) or len(set(sizes.values())) != 1:
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


def _metric(cls: type[StreamingMetric], texts: Sequence[str]) -> StreamingMetric:
    options = _once("--option", [_option(text) for text in texts])
    try:
        return cls(**options)
    except (TypeError, AttributeError) as error:
        got = f"{', '.join(texts) or 'none'}: {error}"
        raise refuse("--option", f"what {cls.__name__} takes", got) from error


def _option(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise refuse("--option", "NAME=VALUE", describe(text))
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _batch_size(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise refuse("--batch", "a whole number of at least 1", describe(text))
    return int(text)


def _arrays(inputs: Sequence[str]) -> dict[str, Tensor]:
    """`--preds FILE[:KEY]`, `--preds=FILE[:KEY]` and so on."""
    places: list[tuple[str, str]] = []
    rest = list(inputs)
    while rest:
        flag, sign, place = rest.pop(0).partition("=")
        if not sign and rest:
            place = rest.pop(0)
        name = flag[2:].replace("-", "_")
        if not flag.startswith("--") or not name.isidentifier() or not place or place[:2] == "--":
            raise refuse("inputs", "--NAME FILE[:KEY] for every input", describe(" ".join(inputs)))
        places.append((name, place))
    return {name: _array(name, place) for name, place in _once("inputs", places).items()}


def _once(argument: str, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise refuse(argument, "every name once", f"{', '.join(twice)} more than once")
    return dict(pairs)


def _array(name: str, place: str) -> Tensor:
    """An array as a tensor; booleans, for masks, stay booleans."""
    import numpy as np

    path, colon, _ = place.rpartition(":")
    if colon and path.lower().endswith(".npy"):
        raise refuse(name, "a file without a key, for .npy holds one array", describe(place))
    loaded = load_array(place)
    if isinstance(loaded, Tensor):
        return loaded
    array = np.asarray(loaded)
    if array.dtype.kind not in "biuf":
        raise refuse(name, "numbers", f"{array.dtype} in {place}")
    # torch knows neither other byte orders nor long doubles, and few unsigned integers.
    dtype = array.dtype.newbyteorder("=")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        dtype = np.dtype(np.float64)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        dtype = np.dtype(np.int64)
        if array.size and int(array.max()) > np.iinfo(dtype).max:
            raise refuse(name, "integers below 2^63", f"{array.max()} in {place}")
    return torch.from_numpy(array.astype(dtype, copy=False))


def _plain(value: Any) -> Any:
    """NaN and infinities as null, for JSON knows neither."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main())
