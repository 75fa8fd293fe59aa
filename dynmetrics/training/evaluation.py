"""Evaluation of a model over a loader: the plain loop's counterpart of MATLAB's `testnet`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dynmetrics.core.checks import describe, refuse
from dynmetrics.core.suite import MetricSuite
from dynmetrics.training.inputs import InputMap, suite_inputs
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

    A batch (x, target) gives `model(x)` as `preds` (and `activations`) and `target`; a batch that
    is a mapping is given to the model whole, and the suite's inputs are looked up by name in the
    model's outputs, then in the batch. The model runs in evaluation mode without gradients and is
    left in the mode it had; the suite itself is not changed.

    Args:
        model: any module; a network with several outputs returns a mapping, of which each metric
            takes its `network_output`.
        loader: batches, tensors in tuples or mappings.
        suite: what to measure.
        device: where to run; by default where the model's parameters are.
        inputs: names where to find the suite's inputs, or a function `f(outputs, batch)`.
        progress: show a progress bar on a terminal, if rich is installed.

    Returns:
        All results by name; printing them gives a table.

    Raises:
        ValueError: if an input of the suite is found neither in the outputs nor in the batch.

    Example:
        >>> import torch
        >>> from dynmetrics import Accuracy, MetricSuite
        >>> from dynmetrics.training import evaluate
        >>> batches = [(torch.eye(2), torch.tensor([0, 1])), (torch.eye(2), torch.tensor([0, 0]))]
        >>> print(evaluate(torch.nn.Identity(), batches, MetricSuite({"accuracy": Accuracy()})))
        accuracy  0.7500
    """
    if device is None:
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
    if not isinstance(suite, MetricSuite):
        raise refuse("suite", "a MetricSuite", describe(suite))
    own = suite.clone().to(device)
    own.reset()
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            for batch in _with_progress(loader, progress):
                batch = moved(batch, device)
                outputs, named = _run(model, batch)
                own.update(**suite_inputs(own, outputs, named, inputs))
            return Evaluation(own.compute())
    finally:
        for module, mode in modes:
            module.training = mode


def _run(model: nn.Module, batch: Any) -> tuple[Any, Any]:
    """What the model returns, and the batch, both with names."""
    if isinstance(batch, Mapping):
        outputs = model(batch)
        named = {} if isinstance(outputs, Mapping) else {"preds": outputs, "activations": outputs}
        return (outputs if isinstance(outputs, Mapping) else named), batch
    x, *rest = batch if isinstance(batch, Sequence) else (batch,)
    outputs = model(x)
    named = {"preds": outputs, "activations": outputs}
    if isinstance(outputs, Mapping):
        named = {**named, **outputs}
    return named, dict(zip(("target", "mask"), rest, strict=False))


def moved(batch: Any, device: torch.device | str) -> Any:
    """All tensors of a nested batch on `device`."""
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {key: moved(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [moved(value, device) for value in batch]
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
