"""StateStore: the states of a metric, declared, combined, placed and saved."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from dynmetrics.core.checks import describe, refuse
from dynmetrics.core.identity import configuration_of, digest
from dynmetrics.core.rows import combine_rows, thinned
from dynmetrics.core.state import Fold, Overflow, Size, State, StateSpec, combine_tensors

Snapshot = dict[str, State]


class StateStore(Metric):
    """The half of a metric that owns its states.

    A metric's configuration is a state too, `identity`: so no collection shares states between
    metrics that differ, whatever their first batch holds, and no checkpoint is loaded into
    another configuration.
    """

    configuration: str
    state_specs: dict[str, StateSpec]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Let every constructor note its options, so that no subclass can forget one."""
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _noting_options(cls.__init__)  # type: ignore[method-assign]

    def __init__(self, *, network_output: str | None = None, **kwargs: Any) -> None:
        if network_output is not None and not isinstance(network_output, str):
            raise refuse("network_output", "a name or None", describe(network_output))
        super().__init__(**kwargs)
        options = {"network_output": network_output}
        self.__dict__.setdefault("configuration", configuration_of(type(self), options))
        self.network_output = network_output
        self.state_specs = {}
        self._reservoirs: dict[str, list[str]] = {}
        self.result_dtype = torch.float64
        self.add_state("identity", digest(self.configuration), None, persistent=True)

    def add_counts(self, name: str, shape: tuple[Size, ...] = ()) -> None:
        """Declare a sum of integers, kept in int64."""
        self._declare(StateSpec(name, "sum", shape, torch.int64))

    def add_sum(self, name: str, shape: tuple[Size, ...] = ()) -> None:
        """Declare a sum of real numbers, kept in float64."""
        self._declare(StateSpec(name, "sum", shape, torch.float64))

    def add_max(
        self, name: str, shape: tuple[Size, ...] = (), dtype: torch.dtype = torch.float64
    ) -> None:
        """Declare a running maximum."""
        self._declare(StateSpec(name, "max", shape, dtype))

    def add_min(
        self, name: str, shape: tuple[Size, ...] = (), dtype: torch.dtype = torch.float64
    ) -> None:
        """Declare a running minimum."""
        self._declare(StateSpec(name, "min", shape, dtype))

    def add_folded(self, name: str, shape: tuple[Size, ...], fold: Fold) -> None:
        """Declare a float64 state combined by `fold`, for which zeros are neutral: moments, say."""
        self._declare(StateSpec(name, "fold", shape, torch.float64, fold=fold))

    def add_rows(
        self,
        name: str,
        shape: tuple[Size, ...],
        dtype: torch.dtype,
        capacity: int | None,
        overflow: Overflow = "error",
    ) -> None:
        """Declare rows that are kept as they come, at most `capacity` of them on one rank.

        `overflow` says what more rows do: raise an error, or drop the oldest ("ring").
        """
        self._declare(StateSpec(name, "rows", shape, dtype, capacity, overflow=overflow))

    def add_reservoir(
        self, columns: Mapping[str, tuple[tuple[Size, ...], torch.dtype]], capacity: int, by: str
    ) -> None:
        """Declare rows of several columns, of which a random sample of `capacity` is kept.

        The sample has the rows of the lowest priorities, which `accumulate` gets as the int64
        column `by` (see `row_priorities`). Up to twice `capacity` are held in between.
        """
        for name, (shape, dtype) in {**columns, by: ((), torch.int64)}.items():
            self.add_rows(name, shape, dtype, capacity, "reservoir")
        self._reservoirs[by] = [*columns, by]

    def _declare(self, spec: StateSpec) -> None:
        reduction = {"rows": "cat", "fold": spec.fold}.get(spec.reduction, spec.reduction)
        self.add_state(spec.name, spec.initial(self.device), reduction, persistent=True)
        self.state_specs[spec.name] = spec

    def accumulate(self, **increments: State) -> None:
        """Combine states with what a batch adds: all of them or, on an error, none."""
        attributes = self.__dict__
        specs = attributes["state_specs"]
        for name, increment in increments.items():
            increments[name] = combine(specs[name], attributes[name], increment)
        for by, names in attributes["_reservoirs"].items():
            if by in increments:
                thinned(specs, increments, names)
        attributes.update(increments)

    def memory_bytes(self) -> int:
        """Bytes that the states hold on this rank."""
        states = [self.__dict__[name] for name in self.state_specs]
        tensors = [t for s in states for t in (s if isinstance(s, list) else [s])]
        return sum(t.numel() * t.element_size() for t in tensors)

    def snapshot(self) -> Snapshot:
        """The states as they are now."""
        # States are never changed in place, so references are a full copy.
        return {name: self.__dict__[name] for name in self.state_specs}

    def _initial(self) -> Snapshot:
        return {name: spec.initial(self.device) for name, spec in self.state_specs.items()}

    # --------------------------------------------------------------- placement and checkpoints

    def _apply(  # type: ignore[override]
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True, **_: Any
    ) -> nn.Module:
        """Follow the module to another device; never to another precision (see `set_dtype`)."""
        nn.Module._apply(self, fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(torch.empty(0, device=self._device)).device
        if device != self._device:
            states = self.snapshot()
            if self._device.type == "meta":
                # Nothing on "meta" has values: what was there is no accumulation.
                states = self._initial_on(device)
                self.__dict__["_update_count"] = 0
            self.__dict__.update({n: moved(state, device) for n, state in states.items()})
            self.__dict__.update(_device=device, _computed=None, _forward_cache=None)
            self._remember_defaults()
        return self

    def _initial_on(self, device: torch.device) -> Snapshot:
        return {name: spec.initial(device) for name, spec in self.state_specs.items()}

    def _remember_defaults(self) -> None:
        self._defaults.update(self._initial())
        identity = digest(self.configuration).to(self.device)
        self._defaults["identity"] = self.__dict__["identity"] = identity

    def set_dtype(self, dst_type: str | torch.dtype) -> StateStore:
        """Keep real-valued states, and report results, in another floating precision."""
        dtype = getattr(torch, dst_type, None) if isinstance(dst_type, str) else dst_type
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise refuse("dst_type", "a floating dtype", describe(dst_type))
        for name, spec in list(self.state_specs.items()):
            if spec.dtype.is_floating_point and spec.reduction != "rows":
                self.state_specs[name] = dataclasses.replace(spec, dtype=dtype)
                self.__dict__[name] = self.__dict__[name].to(dtype)
        self.__dict__.update(_dtype=dtype, result_dtype=dtype, _computed=None)
        self._remember_defaults()
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """As in `torch.nn.Module`: the states, copied, with the number of updates."""
        destination = super().state_dict(*args, **kwargs)
        prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
        if any(self._persistent.values()):
            destination[prefix + "update_count"] = torch.tensor(self._update_count)
        return destination

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        names = ["identity", *self.state_specs, "update_count"]
        saved = {n: state_dict.pop(prefix + n) for n in names if prefix + n in state_dict}
        missing = [name for name in names if name not in saved]
        where = prefix.removesuffix(".") or type(self).__name__
        if missing and "identity" in saved and not self._is_identity(saved["identity"]):
            error_msgs.append(f"{where}: {self._foreign()}")
        elif missing:
            if strict and any(self._persistent.values()):
                missing_keys.extend(prefix + name for name in missing)
        else:
            try:
                self._load(saved)
            except ValueError as error:
                error_msgs.append(f"{where}: {error}")
        nn.Module._load_from_state_dict(
            self, state_dict, prefix, local_metadata, strict,
            missing_keys, unexpected_keys, error_msgs,
        )  # fmt: skip

    def _load(self, saved: dict[str, Any]) -> None:
        """Take over a checked copy of the saved states."""
        if self.device.type == "meta":
            raise refuse("checkpoint", "a metric that holds data (see `to_empty`)", "one on meta")
        if not self._is_identity(saved["identity"]):
            raise self._foreign()
        loaded = {}
        for name, spec in self.state_specs.items():
            state = moved(saved[name], torch.device("cpu"))
            if isinstance(state, Tensor) and state.dtype is not spec.dtype:
                raise refuse(name, f"a state of {spec.dtype}", describe(state))
            checked = combine(spec, spec.initial(torch.device("cpu")), state)
            loaded[name] = moved(checked, self.device)
        count = saved["update_count"]
        if not isinstance(count, Tensor) or count.shape != () or int(count) < 0:
            raise refuse("update_count", "a tensor with one number, not negative", describe(count))
        self.__dict__.update(loaded, _update_count=int(count), _computed=None)

    def _is_identity(self, value: Any) -> bool:
        return isinstance(value, Tensor) and torch.equal(value.cpu(), digest(self.configuration))

    def _foreign(self) -> ValueError:
        return refuse("checkpoint", self.configuration, "the state of another configuration")

    def extra_repr(self) -> str:
        """The options that differ from their defaults."""
        return self.configuration.partition("(")[2].removesuffix(")")


def _noting_options(init: Callable[..., None]) -> Callable[..., None]:
    positional = list(inspect.signature(init).parameters)[1:]

    @functools.wraps(init)
    def noting(self: StateStore, *args: Any, **options: Any) -> None:
        # The outermost constructor runs first; those of the base classes find the note taken.
        if "configuration" not in self.__dict__:
            named = {**dict(zip(positional, args, strict=False)), **options}
            self.__dict__["configuration"] = configuration_of(type(self), named)
        init(self, *args, **options)

    return noting


def combine(spec: StateSpec, state: State, other: State) -> State:
    """`state` and `other` as one, checked; neither is changed."""
    function = combine_rows if spec.reduction == "rows" else combine_tensors
    return function(spec, state, other)


def moved(state: Any, device: torch.device) -> State:
    """A copy of a state on `device`."""
    chunks = state if isinstance(state, list) else [state]
    if not all(isinstance(chunk, Tensor) for chunk in chunks):
        raise refuse("state", "a tensor or a list of tensors", describe(state))
    copies = [chunk.detach().to(device, copy=True) for chunk in chunks]
    return copies if isinstance(state, list) else copies[0]
