"""ActivationRecorder: the activations of named layers over time, by forward hooks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from dynmetrics.core.checks import check_choice, describe, refuse


class ActivationRecorder:
    r"""Collects what layers of a model put out, stacked over time to (B, T, ...).

    A recurrent network calls a module once for every timestep; the recorder stacks these calls.
    One module that several layers share, a nonlinearity say, is called once per layer and timestep:
    name the layers in the order of the calls. After every forward pass of the model `activations`
    holds the tensors of that pass alone, detached.

    Args:
        model: the model whose forward pass is one sequence. A `DistributedDataParallel` wrapper is
            looked through. A model compiled by `torch.compile` is refused, for its graph runs past
            hooks that it has not seen: record the module that was compiled.
        layers: names of modules as in `model.named_modules()`; or a mapping from such a name to the
            layer's name, or to the names of all layers that share the module, in order.
        reduce: applied to the output (B, ...) of every call at once, so that what it drops need not
            be kept.
        time: "calls" stacks the calls of a module; "output" is for modules that are called once
            with all timesteps, (B, T, ...), and whose output is taken as it is.

    Raises:
        ValueError: for a name that is no module, and after a forward pass in which the calls of a
            shared module are no multiple of its layers.

    Example:
        >>> import torch
        >>> from dynmetrics.training import ActivationRecorder
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.relu = torch.nn.ReLU()
        ...     def forward(self, x):  # (B, T, D), two layers that share the nonlinearity
        ...         for t in range(x.shape[1]):
        ...             state = self.relu(self.relu(x[:, t]) - 1)
        ...         return state
        >>> model = Net()
        >>> with ActivationRecorder(model, {"relu": ["V1", "IT"]}) as recorder:
        ...     _ = model(torch.ones(2, 5, 3))
        >>> {name: tuple(value.shape) for name, value in recorder.activations.items()}
        {'V1': (2, 5, 3), 'IT': (2, 5, 3)}
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[str] | Mapping[str, str | Sequence[str]],
        *,
        reduce: Callable[[Tensor], Tensor] | None = None,
        time: str = "calls",
    ) -> None:
        if not isinstance(model, nn.Module):
            raise refuse("model", "a torch module", describe(model))
        if hasattr(model, "_orig_mod"):
            raise refuse("model", "the module that was compiled, model._orig_mod", describe(model))
        check_choice("time", time, ("calls", "output"))
        if reduce is not None and not callable(reduce):
            raise refuse("reduce", "a function of a tensor, or None", describe(reduce))
        inner = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
        self._layers = _checked_layers(dict(inner.named_modules()), layers)
        self._modules = {name: inner.get_submodule(name) for name in self._layers}
        self._model = inner
        self._reduce = reduce
        self._time = time
        self._calls: dict[str, list[Tensor]] = {}
        self._handles: list[Any] = []
        self._paused = False
        self.activations: dict[str, Tensor] = {}
        """The activations (B, T, ...) of the last forward pass, by layer."""

    def __enter__(self) -> ActivationRecorder:
        self.attach()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def attach(self) -> None:
        """Begin to record; without `with`, call `remove` at the end."""
        if self._handles:
            return
        self._handles.append(self._model.register_forward_pre_hook(self._begin))
        for name, module in self._modules.items():
            self._handles.append(module.register_forward_hook(self._recording(name)))
        self._handles.append(self._model.register_forward_hook(self._finish))

    def remove(self) -> None:
        """Take all hooks away; the last activations stay."""
        while self._handles:
            self._handles.pop().remove()
        self._calls = {}

    @contextmanager
    def paused(self) -> Generator[None, None, None]:
        """Record nothing inside the block: for warm-up timesteps before the stimulus."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    # ------------------------------------------------------------------------------- the hooks

    def _begin(self, *_: Any) -> None:
        self._calls = {name: [] for name in self._layers}

    def _recording(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def record(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if self._paused or name not in self._calls:
                return
            # A recurrent cell returns its state beside the output: the output comes first.
            value = output[0] if isinstance(output, (tuple, list)) else output
            if not isinstance(value, Tensor):
                raise refuse(name, "a module that returns a tensor", describe(value))
            # A copy, for what comes next may write into the output in place.
            value = value.detach().clone() if self._reduce is None else self._reduce(value.detach())
            self._calls[name].append(value)

        return record

    def _finish(self, *_: Any) -> None:
        if self._paused:
            return
        activations: dict[str, Tensor] = {}
        for name, layers in self._layers.items():
            calls = self._calls.get(name, [])
            if not calls or len(calls) % len(layers):
                expected = f"a multiple of {len(layers)} calls, for {layers}, in a forward pass"
                raise refuse(name, expected, f"{len(calls)}")
            for i, layer in enumerate(layers):
                activations[layer] = self._stacked(name, calls[i :: len(layers)])
        self.activations, self._calls = activations, {}

    def _stacked(self, name: str, calls: list[Tensor]) -> Tensor:
        if self._time == "calls":
            return torch.stack(calls, 1)
        if len(calls) > 1:
            raise refuse(name, "one call in a forward pass for time='output'", f"{len(calls)}")
        return calls[0]


def _checked_layers(
    known: Mapping[str, nn.Module], layers: Sequence[str] | Mapping[str, str | Sequence[str]]
) -> dict[str, list[str]]:
    """For every module's name the names of its layers in the order of calls."""
    if isinstance(layers, str) or not isinstance(layers, (Mapping, Sequence)):
        raise refuse("layers", "a sequence or a mapping of names", describe(layers))
    pairs = layers.items() if isinstance(layers, Mapping) else [(name, name) for name in layers]
    for name, own in pairs:
        if not isinstance(name, str) or not isinstance(own, Sequence):
            raise refuse("layers", "names, or lists of names", f"{name!r}: {describe(own)}")
    named = {name: [own] if isinstance(own, str) else list(own) for name, own in pairs}
    missing = [name for name, own in named.items() if name not in known or not own]
    if missing or not named:
        raise refuse("layers", f"names among {sorted(filter(None, known))}", f"{missing}")
    every = [layer for own in named.values() for layer in own]
    if len(set(every)) < len(every):
        raise refuse("layers", "different names for different layers", f"{every}")
    return named
