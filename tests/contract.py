"""The laws that every metric obeys, as one battery to inherit.

A test class names a factory, an input generator and an independent reference:

    class TestTemporalAccuracy(MetricContract):
        def make(self): ...
        def batches(self, seed): ...
        def reference(self, batches): ...

`optout` maps the name of a law to the reason why it cannot hold.
"""

from __future__ import annotations

import copy
import functools
import io
import itertools
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torchmetrics import MetricCollection

from dynmetrics.core import StreamingMetric
from tests.host_sync import without_host_sync
from tests.ranks import run_ranks

Batch = dict[str, Any]
Result = Tensor | Mapping[str, Tensor]


def law(test: Callable[..., None]) -> Callable[..., None]:
    """Skips a law that the class opts out of, with its reason."""

    @functools.wraps(test)
    def checked(self: MetricContract, *args: Any, **kwargs: Any) -> None:
        reason = self.optout.get(test.__name__.removeprefix("test_"))
        if reason:
            pytest.skip(reason)
        test(self, *args, **kwargs)

    return checked


class MetricContract:
    """What a metric's test says; the laws follow from it."""

    atol: ClassVar[float] = 1e-9
    half_atol: ClassVar[float] = 1e-6
    """Against the reference of the rounded inputs: rounding is the only loss allowed."""
    optout: ClassVar[dict[str, str]] = {}
    depends_on_n: ClassVar[set[str]] = set()
    """Entries of the result that change when every sample is seen twice: intervals."""
    sample_axis: ClassVar[dict[str, int]] = {}
    """The axis of the samples in inputs where it is not the first."""

    def make(self) -> StreamingMetric:
        raise NotImplementedError

    def batches(self, seed: int = 0) -> list[Batch]:
        """Uneven batches that agree in nothing but what they must."""
        raise NotImplementedError

    def reference(self, batches: list[Batch]) -> Any:
        """The result in plain NumPy, from the definition."""
        raise NotImplementedError

    def rivals(self) -> list[tuple[StreamingMetric, StreamingMetric, Batch]]:
        """Pairs of configurations, and a first batch after which their states agree."""
        raise NotImplementedError

    def bad_inputs(self) -> list[Batch]:
        """Inputs of `update` that have to be refused."""
        raise NotImplementedError

    def bad_options(self) -> list[Callable[[], Any]]:
        """Constructor calls that have to be refused."""
        raise NotImplementedError

    def kernel(self) -> tuple[Callable[..., Any], Sequence[Any]]:
        """The pure function of the family, and arguments for it."""
        raise NotImplementedError

    # ------------------------------------------------------------------ splits and merges

    @law
    def test_value_after_every_prefix(self) -> None:
        metric, batches = self.make(), self.batches()
        for i, batch in enumerate(batches):
            metric.update(**batch)
            assert_same(metric.compute(), self.reference(batches[: i + 1]), self.atol)

    @law
    def test_any_split_in_any_order(self) -> None:
        expected = self.reference(self.batches())
        for seed in range(3):
            metric = fed(self.make(), self.scattered(seed))
            assert_same(metric.compute(), expected, self.atol)

    @law
    def test_merge_in_every_direction(self) -> None:
        batches = self.batches()
        expected = self.reference(batches)
        for cut in range(len(batches) + 1):
            left, right = fed(self.make(), batches[:cut]), fed(self.make(), batches[cut:])
            before = copy.deepcopy(left.metric_state)
            right.merge_state(left)
            assert_same(right.compute(), expected, self.atol)
            assert_equal_states(left.metric_state, before)
            assert right.update_count == len(batches)

    @law
    def test_merge_of_a_dict_of_states(self) -> None:
        batches = self.batches()
        left, right = fed(self.make(), batches[:1]), fed(self.make(), batches[1:])
        right.merge_state(left.metric_state)
        assert_same(right.compute(), self.reference(batches), self.atol)
        with pytest.raises(ValueError, match="merge_state: expected"):
            right.merge_state({})
        assert_same(right.compute(), self.reference(batches), self.atol)

    @law
    @pytest.mark.parametrize("world_size", [1, 2, 3])
    def test_ranks_equal_one_process(self, world_size: int) -> None:
        batches = self.batches()
        shares = {
            "turns": [batches[rank::world_size] for rank in range(world_size)],
            "one rank has all": [
                batches if rank == world_size - 1 else [] for rank in range(world_size)
            ],
            "nobody": [[] for _ in range(world_size)],
        }
        results = run_ranks(_compute_shares, world_size, self.make(), list(shares.values()))
        for result in results:
            assert_same(result[0], self.reference(batches), self.atol)
            assert_same(result[1], self.reference(batches), self.atol)
            assert_same(result[2], quietly(self.make().compute), self.atol)

    # ------------------------------------------------------------------ forward and compute

    @law
    def test_forward_is_the_batch_and_costs_no_history(self) -> None:
        metric, batches = self.make(), self.batches()
        for batch in batches:
            assert_same(metric(**batch), self.reference([batch]), self.atol)
        assert_same(metric.compute(), self.reference(batches), self.atol)
        assert metric.update_count == len(batches)

    @law
    def test_compute_can_be_repeated_and_edited(self) -> None:
        metric = fed(self.make(), self.batches())
        first = metric.compute()
        for value in values(first):
            value.fill_(7)
        assert_same(metric.compute(), self.reference(self.batches()), self.atol)

    @law
    def test_result_matches_its_axes(self) -> None:
        metric = fed(self.make(), self.batches())
        result, axes = metric.compute(), metric.axes
        if isinstance(result, Tensor):
            assert isinstance(axes, tuple)
            assert result.ndim == len(axes)
        else:
            assert isinstance(axes, dict)
            assert {name: value.ndim for name, value in result.items()} == {
                name: len(letters) for name, letters in axes.items()
            }
            assert list(result) == list(axes)

    @law
    def test_nothing_seen_is_defined(self) -> None:
        with pytest.warns(UserWarning, match="before any update"):
            self.make().compute()

    # ------------------------------------------------------------------ lifetime

    @law
    def test_reset_is_fresh_and_frees_memory(self) -> None:
        metric, batches = fed(self.make(), self.batches()), self.batches()
        metric.reset()
        assert metric.memory_bytes() == self.make().memory_bytes()
        assert metric.update_count == 0
        assert_same(fed(metric, batches).compute(), self.reference(batches), self.atol)

    @law
    def test_inputs_stay_and_no_graph_is_kept(self) -> None:
        metric, batches = self.make(), self.batches()
        for batch in batches:
            before = copy.deepcopy(batch)
            for value in batch.values():
                if isinstance(value, Tensor) and value.is_floating_point():
                    value.requires_grad_()
            with torch.enable_grad():
                metric(**batch)
            assert_equal_states(batch, before)
        assert not any(state.requires_grad for state in tensors(metric.metric_state))
        assert_same(metric.clone().compute(), self.reference(self.batches()), self.atol)

    @law
    @pytest.mark.parametrize("how", ["pickle", "deepcopy", "state_dict", "file"])
    def test_copies_continue_in_mid_stream(self, how: str) -> None:
        batches = self.batches()
        metric = fed(self.make(), batches[:1])
        copied = self.make()
        if how == "pickle":
            copied = pickle.loads(pickle.dumps(metric))
        elif how == "deepcopy":
            copied = copy.deepcopy(metric)
        else:
            saved = metric.state_dict()
            if how == "file":
                buffer = io.BytesIO()
                torch.save(saved, buffer)
                buffer.seek(0)
                saved = torch.load(buffer, weights_only=True)
            copied.load_state_dict(saved)
            for tensor in tensors(saved):
                tensor.zero_()
        assert copied.update_count == 1
        fed(copied, batches[1:])
        assert_same(copied.compute(), self.reference(batches), self.atol)
        assert_same(metric.compute(), self.reference(batches[:1]), self.atol)

    @law
    def test_wrong_checkpoint_is_refused(self) -> None:
        metric, batches = fed(self.make(), self.batches()), self.batches()
        good = metric.state_dict()
        wrong: list[dict[str, Any]] = [{}]
        for name in metric.state_specs:
            wrong.append({k: v for k, v in good.items() if k != name})
            wrong.append({**good, name: torch.zeros(1, 2, 3, 4, 5)})
            wrong.append({**good, name: "text"})
        wrong.append({**good, "identity": torch.zeros(16, dtype=torch.int64)})
        for other, _, _ in self.rivals()[:1]:
            wrong.append({**good, "identity": other.state_dict()["identity"] + 1})
        for state in wrong:
            with pytest.raises(RuntimeError, match="Error"):
                metric.load_state_dict(state)
            assert_same(metric.compute(), self.reference(batches), self.atol)

    @law
    def test_inference_mode_is_harmless(self) -> None:
        metric, batches = self.make(), self.batches()
        with torch.inference_mode():
            metric.reset()
            metric.update(**batches[0])
        fed(metric, batches[1:])
        assert_same(metric.clone().compute(), self.reference(batches), self.atol)
        with torch.inference_mode():
            assert_same(metric.compute(), self.reference(batches), self.atol)

    # ------------------------------------------------------------------ numbers

    @law
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precision_inputs(self, dtype: torch.dtype) -> None:
        halves = [converted(batch, dtype) for batch in self.batches()]
        rounded = [converted(batch, torch.float64) for batch in halves]
        metric = fed(self.make(), halves)
        assert_same(metric.compute(), self.reference(rounded), self.half_atol)

    @law
    def test_autocast_is_harmless(self) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            metric = fed(self.make(), self.batches())
        assert_same(metric.compute(), self.reference(self.batches()), self.atol)

    @law
    def test_counts_beyond_float32(self) -> None:
        batches = self.batches()
        metric = fed(self.make(), batches)
        before = counts(metric)
        for _ in range(26):
            metric.merge_state(metric.clone())
        one = counts(fed(self.make(), batches))
        fed(metric, batches)
        for name, value in counts(metric).items():
            assert torch.equal(value, before[name] * 2**26 + one[name])
        result, expected = metric.compute(), self.reference(batches)
        if isinstance(result, Tensor):
            assert_same(result, expected, self.atol)
            return
        for name, value in result.items():
            if value.is_floating_point() and name not in self.depends_on_n:
                assert_same(value, expected[name], self.atol)

    @law
    @pytest.mark.parametrize("cast", ["to", "half", "bfloat16", "double"])
    def test_precision_of_a_parent_is_harmless(self, cast: str) -> None:
        parent = nn.Sequential(nn.Linear(1, 1))
        parent.metric = self.make()  # type: ignore[assignment]
        metric: Any = parent.metric
        batches = self.batches()
        metric.update(**batches[0])
        parent.to(torch.bfloat16) if cast == "to" else getattr(parent, cast)()
        fed(metric, batches[1:])
        assert_same(metric.compute(), self.reference(batches), self.atol)
        for name, spec in metric.state_specs.items():
            assert all(t.dtype is spec.dtype for t in tensors({name: getattr(metric, name)}))

    # ------------------------------------------------------------------ misuse

    @law
    def test_failed_update_is_harmless(self) -> None:
        metric, batches = fed(self.make(), self.batches()), self.batches()
        for bad in self.bad_inputs():
            for call in (metric.update, metric.forward):
                with pytest.raises(ValueError, match=r"\w+: expected .+, got .+"):
                    call(**bad)
                assert metric.update_count == len(batches)
                assert metric._to_sync is metric.sync_on_compute
                assert_same(metric.compute(), self.reference(batches), self.atol)

    @law
    def test_bad_options_are_refused(self) -> None:
        for construct in self.bad_options():
            with pytest.raises(ValueError, match=r"\w+: expected .+, got .+"):
                construct()

    @law
    def test_failed_compute_in_forward_loses_nothing(self) -> None:
        batches = self.batches()
        metric = fed(self.make(), batches)
        fine = metric.compute

        def broken() -> Result:
            raise KeyboardInterrupt

        metric.compute = broken  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            metric(**batches[0])
        metric.compute = fine  # type: ignore[method-assign]
        assert metric.update_count == len(batches)
        assert_same(metric.compute(), self.reference(batches), self.atol)

    @law
    def test_two_configurations_are_never_merged(self) -> None:
        batches = self.batches()
        for one, other, first in self.rivals():
            stream = [first, *batches]
            collection = MetricCollection({"one": one.clone(), "other": other.clone()})
            for batch in stream:
                collection.update(**batch)
            result = dict(collection.items())
            assert len(collection.compute_groups) == 2
            assert_same(result["one"].compute(), fed(one, stream).compute(), 0.0)
            assert_same(result["other"].compute(), fed(other, stream).compute(), 0.0)
            with pytest.raises(ValueError, match="merge_state: expected"):
                one.merge_state(other)

    @law
    def test_equal_configurations_may_share(self) -> None:
        batches = self.batches()
        collection = MetricCollection({"one": self.make(), "other": self.make()})
        for batch in batches:
            collection.update(**batch)
        for metric in dict(collection.items()).values():
            assert_same(metric.compute(), self.reference(batches), self.atol)

    # ------------------------------------------------------------------ devices

    @law
    def test_update_never_waits_for_the_device(self) -> None:
        metric = self.make()
        for batch in self.batches():
            without_host_sync(lambda batch=batch: metric.update(**batch))  # type: ignore[misc]
        assert_same(metric.compute(), self.reference(self.batches()), self.atol)

    @law
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_on_cuda(self) -> None:
        metric = self.make().cuda()
        batches = [moved(batch, "cuda") for batch in self.batches()]
        metric.update(**batches[0])
        torch.cuda.set_sync_debug_mode("error")
        try:
            for batch in batches[1:]:
                metric.update(**batch)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert_same(metric.compute(), self.reference(self.batches()), self.atol)

    @law
    def test_other_device_is_refused(self) -> None:
        metric, batches = fed(self.make(), self.batches()), self.batches()
        with pytest.raises(ValueError, match="device|tensor"):
            metric.update(**moved(batches[0], "meta"))
        assert_same(metric.compute(), self.reference(batches), self.atol)

    @law
    def test_kernel_compiles_in_one_graph(self) -> None:
        function, arguments = self.kernel()
        torch._dynamo.reset()
        compiled = torch.compile(function, fullgraph=True, backend="eager")
        for ours, plain in zip(
            leaves(compiled(*arguments)), leaves(function(*arguments)), strict=True
        ):
            torch.testing.assert_close(ours, plain, equal_nan=True)

    # ------------------------------------------------------------------ helpers

    def scattered(self, seed: int) -> list[Batch]:
        """The batches sample by sample or in pieces, in random order."""
        rng = np.random.default_rng(seed)
        pieces: list[Batch] = []
        for batch in self.batches():
            n = self.samples(batch)
            cuts = sorted(rng.integers(0, n + 1, size=rng.integers(0, n + 2)).tolist()) if n else []
            edges = [0, *cuts, n]
            pieces += [self.piece(batch, a, b) for a, b in itertools.pairwise(edges)]
        return [pieces[i] for i in rng.permutation(len(pieces))]

    def samples(self, batch: Batch) -> int:
        name, value = next((n, v) for n, v in batch.items() if isinstance(v, Tensor))
        return int(value.shape[self.sample_axis.get(name, 0)])

    def piece(self, batch: Batch, start: int, stop: int) -> Batch:
        return {
            name: value.narrow(self.sample_axis.get(name, 0), start, stop - start)
            if isinstance(value, Tensor)
            else value
            for name, value in batch.items()
        }


def _compute_shares(
    rank: int, metric: StreamingMetric, shares: list[list[list[Batch]]]
) -> list[Any]:
    results = []
    for share in shares:
        mine = fed(metric.clone(), share[rank])
        before = copy.deepcopy(mine.metric_state)
        results.append(quietly(mine.compute))
        assert_equal_states(mine.metric_state, before)
    return results


def quietly(call: Callable[[], Any]) -> Any:
    """`call` without the warning that there is no data."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*before any update")
        return call()


def fed(metric: Any, batches: list[Batch]) -> Any:
    for batch in batches:
        metric.update(**batch)
    return metric


def values(result: Result) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result.values())


def leaves(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [leaf for part in result for leaf in leaves(part)]
    return [] if result is None else [result]


def tensors(states: Mapping[str, Any]) -> list[Tensor]:
    return [leaf for state in states.values() for leaf in leaves(state) if isinstance(leaf, Tensor)]


def counts(metric: StreamingMetric) -> dict[str, Tensor]:
    names = [n for n, spec in metric.state_specs.items() if spec.dtype is torch.int64]
    return {name: getattr(metric, name).clone() for name in names}


def converted(batch: Batch, dtype: torch.dtype) -> Batch:
    return {
        name: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in batch.items()
    }


def moved(batch: Batch, device: str) -> Batch:
    return {n: v.to(device) if isinstance(v, Tensor) else v for n, v in batch.items()}


def assert_equal_states(states: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for ours, theirs in zip(tensors(states), tensors(expected), strict=True):
        torch.testing.assert_close(ours.detach(), theirs, rtol=0, atol=0, equal_nan=True)


def assert_same(result: Any, expected: Any, atol: float) -> None:
    """Same keys, shapes, values; integers exactly; NaN equals NaN."""
    if isinstance(result, Mapping):
        assert set(result) == set(expected)
        for name in result:
            assert_same(result[name], expected[name], atol)
        return
    ours = result.detach().cpu().numpy()
    theirs = (
        expected.detach().cpu().numpy() if isinstance(expected, Tensor) else np.asarray(expected)
    )
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    if np.issubdtype(ours.dtype, np.integer):
        np.testing.assert_array_equal(ours, theirs)
    else:
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol)
