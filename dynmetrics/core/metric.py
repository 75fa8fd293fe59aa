"""StreamingMetric: what every metric inherits.

It keeps the interface of `torchmetrics.Metric` and replaces how state is stored, guarded, moved,
merged, saved and synchronised. What depends on torchmetrics' internals is here and in `sync`.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torchmetrics import Metric
from torchmetrics.metric import CompositionalMetric
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from dynmetrics.core.checks import describe, refuse, select_output
from dynmetrics.core.exchange import exchange_for
from dynmetrics.core.storage import StateStore, moved
from dynmetrics.core.sync import synchronise

# The public forms of these cost several times as much: more than a small update itself.
is_grad_enabled = torch.is_grad_enabled
set_grad_enabled = torch._C._set_grad_enabled
is_autocast_enabled = torch._C._is_any_autocast_enabled
is_compiling = torch.compiler.is_compiling

Result = Tensor | dict[str, Tensor]
Axes = tuple[str, ...] | dict[str, tuple[str, ...]]
Method = TypeVar("Method", bound=Callable[..., Any])


_AS_IT_IS = nullcontext()


def _untraced(function: Method) -> Method:
    """`function`, left out of compiled graphs: its count of updates would recompile every step."""
    outside = _disable_dynamo(function)

    @functools.wraps(function)
    def choosing(*args: Any, **kwargs: Any) -> Any:
        return outside(*args, **kwargs) if is_compiling() else function(*args, **kwargs)

    return cast(Method, choosing)


class StreamingMetric(StateStore):
    """A metric whose state streams and adds up exactly over batches, ranks and restarts.

    A subclass declares its states in `__init__` (`add_counts`, `add_sum`, `add_max`, `add_min`,
    `add_rows`), checks its inputs in `update` and then calls `accumulate` with what the batch adds,
    and turns states into a result in `compute`. Its constructor takes keyword options only.

    Under `torch.distributed` every rank has to call `compute`, also one that has seen no data. A
    job that cannot do so sets `sync_on_compute=False`, lets every rank save its `state_dict`, which
    needs no other rank, and joins the files by `merge_state`.

    Where one number is wanted of a result with several entries (Lightning's `self.log`, a tracker),
    `metric["entry"]` is a metric of its own, with this one inside: update one of the two.

    A checkpoint holds the states. With Lightning, reset training metrics in `on_train_epoch_start`,
    which a resumed epoch skips: a checkpoint written after validation still holds their epoch.

    Args:
        network_output: the entry to read where an input of `update` is a mapping from the names of
            a network's outputs to tensors.
        kwargs: the options of `torchmetrics.Metric`.
    """

    is_differentiable = False
    full_state_update = False
    identity: Tensor

    def __init__(self, *, network_output: str | None = None, **kwargs: Any) -> None:
        super().__init__(network_output=network_output, **kwargs)
        self._synced_updates = 0
        self._warned: set[str] = set()

    @property
    def axes(self) -> Axes:
        """The axis letters of the result: of the tensor, or of each entry of the dict."""
        raise NotImplementedError(f"{type(self).__name__} does not name its axes")

    def __getitem__(self, idx: int | str) -> CompositionalMetric:
        """A metric of one entry of this one's result."""
        return super().__getitem__(idx)  # type: ignore[index]

    def warn_once(self, topic: str, message: str) -> None:
        """Give a warning, unless this metric has given one on the same topic before."""
        if topic not in self._warned:
            self._warned.add(topic)
            warnings.warn(f"{type(self).__name__}: {message}", UserWarning, stacklevel=2)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draw a result, or a list of results, or `compute`, the way torchmetrics does.

        Of a dict the headline is drawn; `dynmetrics.plot` draws curves, intervals and matrices.
        """
        val = self.compute() if val is None else val
        chosen = [_headline(v) for v in val] if isinstance(val, Sequence) else _headline(val)
        return self._plot(chosen, ax)

    # -------------------------------------------------------------- update, forward, compute

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        """Guard `update`: no graph, no autocast, and no trace of a call that fails."""

        @functools.wraps(update)
        def guarded(*args: Any, **kwargs: Any) -> None:
            # nn.Module's own attribute access would cost more than many an update.
            attributes = self.__dict__
            if attributes["_is_synced"]:
                raise TorchMetricsUserError("update: expected a metric that is not synced")
            output = attributes["network_output"]
            if output is not None:
                args = tuple(select_output("update", value, output) for value in args)
                kwargs = {k: select_output(k, value, output) for k, value in kwargs.items()}
            names = attributes["state_specs"]
            before = tuple(map(attributes.__getitem__, names))
            grad_mode = is_grad_enabled()
            set_grad_enabled(False)
            try:
                if is_autocast_enabled():
                    with _without_autocast():
                        update(*args, **kwargs)
                else:
                    update(*args, **kwargs)
            except BaseException:
                attributes.update(zip(names, before, strict=True))
                raise
            finally:
                set_grad_enabled(grad_mode)
            attributes["_computed"] = None
            attributes["_update_count"] += 1
            if attributes["compute_on_cpu"]:
                self._move_list_states_to_cpu()

        return _untraced(guarded)

    @_untraced
    def forward(self, *args: Any, **kwargs: Any) -> Result:
        """Accumulate a batch and return the value of this batch alone."""
        if self._is_synced:
            raise TorchMetricsUserError("forward: expected a metric that is not synced")
        history, count = self.snapshot(), self._update_count
        attributes = self.__dict__
        try:
            attributes.update(self._initial(), _to_sync=self.dist_sync_on_step, _computed=None)
            self.update(*args, **kwargs)
            batch = self.snapshot()
            value: Result = self.compute()
            attributes.update(history)
            self.accumulate(**batch)
            count += 1
        except BaseException:
            attributes.update(history)
            raise
        finally:
            attributes.update(_to_sync=self.sync_on_compute, _computed=None, _update_count=count)
        attributes["_forward_cache"] = value
        return value

    def _wrap_compute(self, compute: Callable[..., Result]) -> Callable[..., Result]:
        """Guard `compute`: joint state while it runs, and a result that is the caller's own."""

        @functools.wraps(compute)
        def guarded(*args: Any, **kwargs: Any) -> Result:
            shared = self._is_synced or (self._to_sync and bool(self.distributed_available_fn()))
            # Another rank may have seen data since: over several ranks no cache is safe.
            cached: Any = self._computed
            if cached is not None and not shared:
                return _own(cached, self.result_dtype)
            with torch.no_grad(), self._joint_state():
                if not (self._synced_updates if self._is_synced else self._update_count):
                    self.warn_once(
                        "no data", "compute was called before any update; the values are undefined"
                    )
                value = _own(compute(*args, **kwargs), self.result_dtype)
            if shared or not self.compute_with_cache:
                return value
            self.__dict__["_computed"] = value
            return _own(value, self.result_dtype)

        return guarded

    def _joint_state(self) -> AbstractContextManager[None]:
        """The state that `compute` is about: of all ranks, unless it is so already or not asked."""
        if self._is_synced or not self._to_sync:
            return _AS_IT_IS
        return self.sync_context(self.dist_sync_fn, should_unsync=self._should_unsync)

    # ------------------------------------------------------------------ merge, sync and reset

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Add the accumulation of another metric, or of a dict of states, to this one.

        The source stays as it is. This is the way to join results without `torch.distributed`.

        Raises:
            ValueError: if the source has another configuration, or lacks a state.
        """
        if self._is_synced:
            raise TorchMetricsUserError("merge_state: expected a metric that is not synced")
        if isinstance(incoming_state, Metric):
            if getattr(incoming_state, "configuration", None) != self.configuration:
                raise refuse("merge_state", self.configuration, _named(incoming_state))
            count = incoming_state._update_count
            incoming_state = {n: getattr(incoming_state, n) for n in self.state_specs}
        elif isinstance(incoming_state, Mapping):
            identity = incoming_state.get("identity", self.identity)
            if not isinstance(identity, Tensor) or identity.tolist() != self.identity.tolist():
                raise refuse("merge_state", self.configuration, "states of another configuration")
            count = int(incoming_state.get("update_count", 1))
        else:
            raise refuse("merge_state", "a metric or a dict of states", describe(incoming_state))
        self._reduce_states(incoming_state)
        self.__dict__["_update_count"] += count
        self._computed = None

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        missing = [name for name in self.state_specs if name not in incoming_state]
        if missing:
            raise refuse("merge_state", f"the states {missing}", describe(incoming_state))
        states = {name: incoming_state[name] for name in self.state_specs}
        self.accumulate(**{name: moved(state, self.device) for name, state in states.items()})

    def sync(
        self,
        dist_sync_fn: Callable[..., Any] | None = None,
        process_group: Any | None = None,
        should_sync: bool = True,
        distributed_available: Callable[[], bool] | None = None,
    ) -> None:
        """Replace the local state by that of all ranks together, until `unsync`."""
        if self._is_synced and should_sync:
            raise TorchMetricsUserError("sync: expected a metric that is not synced")
        available = distributed_available or self.distributed_available_fn
        if should_sync and available():
            group = process_group or self.process_group
            exchange = exchange_for(dist_sync_fn or self.dist_sync_fn, group)
            synchronise({type(self).__name__: self}, exchange)

    def unsync(self, should_unsync: bool = True) -> None:
        """Put the local state back after `sync`."""
        if not should_unsync:
            return
        if not self._is_synced:
            raise TorchMetricsUserError("unsync: expected a metric that is synced")
        self.__dict__.update(self._cache or {}, _is_synced=False, _cache=None)

    @contextmanager
    def sync_context(
        self,
        dist_sync_fn: Callable[..., Any] | None = None,
        process_group: Any | None = None,
        should_sync: bool = True,
        should_unsync: bool = True,
        distributed_available: Callable[[], bool] | None = None,
    ) -> Generator[None, None, None]:
        """Joint state inside the block; the local state is back after it, also after an error."""
        self.sync(dist_sync_fn, process_group, should_sync, distributed_available)
        try:
            yield
        finally:
            self.unsync(should_unsync=self._is_synced and should_unsync)

    def reset(self) -> None:
        """Forget everything accumulated, and free its memory."""
        self.__dict__.update(self._initial(), _update_count=0, _forward_cache=None)
        self.__dict__.update(_computed=None, _cache=None, _is_synced=False)


def _without_autocast() -> ExitStack:
    """Autocast off for every kind of device, for inputs may lie on any."""
    stack = ExitStack()
    for device in ("cpu", "cuda"):
        stack.enter_context(torch.autocast(device, enabled=False))
    return stack


def _named(metric: Metric) -> str:
    return str(getattr(metric, "configuration", type(metric).__name__))


def _headline(value: Result) -> Tensor:
    return value if isinstance(value, Tensor) else next(iter(value.values()))


def _own(value: Result, dtype: torch.dtype) -> Result:
    """A copy that the caller may edit; real numbers in `dtype`."""
    if isinstance(value, Tensor):
        return value.to(dtype, copy=True) if value.is_floating_point() else value.clone()
    return {name: _own(entry, dtype) for name, entry in value.items()}  # type: ignore[misc]
