"""Evaluation of a model over a loader: the plain loop's counterpart of MATLAB's `testnet`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dynmetrics.core.checks import check_flag, describe, refuse
from dynmetrics.core.suite import MetricSuite
from dynmetrics.training.inputs import InputMap, SuiteInputs, check_inputs
from dynmetrics.training.tables import text_cell


class Evaluation(dict[str, Tensor]):
    """Results by name; printed as a table of the scalars among them."""

    def table(self) -> str:
        """Names and values of all scalars, aligned."""
        scalars = {name: float(value) for name, value in self.items() if value.ndim == 0}
        width = max(map(len, scalars), default=0)
        return "\n".join(f"{name.ljust(width)}  {text_cell(v)}" for name, v in scalars.items())

    def __str__(self) -> str:
        return self.table()


def evaluate(
    model: nn.Module,
    loader: Iterable[Any],
    suite: MetricSuite,
    *,
    device: torch.device | str | None = None,
    inputs: InputMap | None = None,
    progress: bool = True,
) -> Evaluation:
    """Run `model` over `loader` and compute the suite, exactly, over all batches and ranks.

    A batch (x, target) or (x, target, mask) gives `model(x)` as `preds` (and `activations`), and
    `target` and `mask`; a batch that is a mapping is given to the model whole, and the suite's
    inputs are looked up by name in the model's outputs, then in the batch. The model runs in
    evaluation mode without gradients and is left in the mode it had; the suite itself is not
    changed.

    Args:
        model: any module; a network with several outputs returns a mapping, of which each metric
            takes its `network_output`.
        loader: batches, tensors in tuples or mappings.
        suite: what to measure.
        device: where to run; by default where the model's parameters are.
        inputs: names where to find the suite's inputs, `{"preds": "logits"}`; or a function
            `f(outputs, batch)` that returns all inputs. `outputs` is a mapping: what the model
            returned if that is one, with any other result as "preds" and "activations". `batch` is
            what the loader yielded, of the same structure, a tuple as a tuple, with its tensors on
            `device`.
        progress: show a progress bar on a terminal, if rich is installed.

    Returns:
        All results by name; printing them gives a table.

    Raises:
        ValueError: if an input of the suite is found neither in the outputs nor in the batch, and
            for arguments of another kind.

    Example:
        >>> import torch
        >>> from dynmetrics import Accuracy, MetricSuite
        >>> from dynmetrics.training import evaluate
        >>> batches = [(torch.eye(2), torch.tensor([0, 1])), (torch.eye(2), torch.tensor([0, 0]))]
        >>> print(evaluate(torch.nn.Identity(), batches, MetricSuite({"accuracy": Accuracy()})))
        accuracy  0.7500
    """
    if not isinstance(model, nn.Module):
        raise refuse("model", "a torch module", describe(model))
    if not isinstance(loader, Iterable):
        raise refuse("loader", "an iterable of batches", describe(loader))
    if not isinstance(suite, MetricSuite):
        raise refuse("suite", "a MetricSuite", describe(suite))
    check_flag("progress", progress)
    check_inputs(inputs, [suite])
    place = _device(model, device)
    own = suite.clone().to(place)
    own.reset()
    finder = SuiteInputs(own, inputs)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            for batch in _with_progress(loader, progress):
                batch = moved(batch, place)
                outputs, named = _run(model, batch)
                own.update(**finder.find(outputs, batch if callable(inputs) else named))
            return Evaluation(own.compute())
    finally:
        for module, mode in modes:
            module.training = mode


def _device(model: nn.Module, device: torch.device | str | None) -> torch.device:
    if device is None:
        return next((p.device for p in model.parameters()), torch.device("cpu"))
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise refuse("device", "a device of torch, or None", describe(device)) from error


def _run(model: nn.Module, batch: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What the model returns, and the batch, both with names."""
    if isinstance(batch, Mapping):
        outputs = model(batch)
        named = outputs if isinstance(outputs, Mapping) else _unnamed(outputs)
        return named, batch
    x, *rest = batch if isinstance(batch, (list, tuple)) and batch else (batch,)
    outputs = model(x)
    named = _unnamed(outputs)
    if isinstance(outputs, Mapping):
        named = {**named, **outputs}
    return named, dict(zip(("target", "mask"), rest, strict=False))


def _unnamed(outputs: Any) -> dict[str, Any]:
    return {"preds": outputs, "activations": outputs}


def moved(batch: Any, device: torch.device) -> Any:
    """A nested batch with all its tensors on `device`; what lies there already stays itself."""
    if hasattr(batch, "to"):
        return batch.to(device)
    if isinstance(batch, Mapping):
        parts: Any = {key: moved(value, device) for key, value in batch.items()}
        return batch if all(parts[key] is batch[key] for key in parts) else parts
    if isinstance(batch, (list, tuple)):
        parts = [moved(value, device) for value in batch]
        if all(part is value for part, value in zip(parts, batch, strict=True)):
            return batch
        named = hasattr(batch, "_fields")
        return type(batch)(*parts) if named else tuple(parts) if isinstance(batch, tuple) else parts
    return batch


def _with_progress(loader: Iterable[Any], progress: bool) -> Iterable[Any]:
    if not progress or not sys.stderr.isatty():
        return loader
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        return loader
    return track(loader, "evaluating", console=Console(stderr=True), transient=True)
