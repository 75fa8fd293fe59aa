"""What the synchronisation promises, on real gloo processes."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torchmetrics import MeanMetric, Metric, MetricCollection, SumMetric
from torchmetrics.utilities.distributed import gather_all_tensors

from dynmetrics import Accuracy, MetricSuite, TemporalAccuracy
from dynmetrics.core.exchange import Exchange, GatherFunctionExchange
from tests import ranks
from tests.contract import assert_same, quietly
from tests.core.toys import Extremes, Mean, Rows, Spread
from tests.ranks import error_of

COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_reduce", "barrier", "broadcast",
               "all_gather_object", "gather", "reduce", "all_to_all")  # fmt: skip


@pytest.fixture(params=[4096, 8], ids=["attached", "apart"], autouse=True)
def room(request: pytest.FixtureRequest) -> int:
    """States travel with the manifest, or on their own."""
    _rooms.append(request.param)
    return _rooms[-1]


_rooms = [4096]


def run_ranks(function: Any, world_size: int, *arguments: Any, **options: Any) -> Any:
    """As in `tests.ranks`, with as much room beside the manifest as the test is about."""
    return ranks.run_ranks(_in_room, world_size, _rooms[-1], function, *arguments, **options)


def _in_room(rank: int, numbers: int, function: Any, *arguments: Any) -> Any:
    with (
        mock.patch.object(Exchange, "room", numbers),
        mock.patch.object(GatherFunctionExchange, "room", numbers),
    ):
        return function(rank, *arguments)


def counted_collectives(call: Any) -> Counter[str]:
    """How often `call` uses each collective."""
    used: Counter[str] = Counter()

    def counting(name: str) -> Any:
        original = getattr(dist, name)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            used[name] += 1
            return original(*args, **kwargs)

        return wrapper

    patches = [mock.patch.object(dist, name, counting(name)) for name in COLLECTIVES]
    for patch in patches:
        patch.start()
    try:
        call()
    finally:
        for patch in patches:
            patch.stop()
    return used


# ---------------------------------------------------------------------------- collectives


class TwoSums(Metric):
    """The plain torchmetrics form of two sum states."""

    full_state_update = False
    total: torch.Tensor
    n: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), "sum")
        self.add_state("n", torch.zeros((), dtype=torch.int64), "sum")

    def update(self, value: torch.Tensor) -> None:
        self.total = self.total + value.sum()
        self.n = self.n + value.numel()

    def compute(self) -> torch.Tensor:
        return self.total / self.n


def _collectives(rank: int) -> tuple[Counter[str], Counter[str]]:
    suite = MetricSuite({f"m{i}": Mean(scale=i + 1.0) for i in range(10)})
    plain = MetricCollection({f"m{i}": TwoSums() for i in range(10)}, compute_groups=False)
    suite.update(value=torch.ones(3))
    plain.update(torch.ones(3))
    # torchmetrics' gather function looks its collectives up in the same module.
    return counted_collectives(suite.compute), counted_collectives(plain.compute)


def test_ten_metrics_of_two_sums_need_one_collective(room: int) -> None:
    for ours, theirs in run_ranks(_collectives, 2):
        # Apart: the manifest, the rest of it, and the sums.
        apart = {"all_gather": 2, "all_reduce": 1}
        assert ours == ({"all_gather": 1} if room == 4096 else apart)
        assert sum(theirs.values()) >= 40


def _mixed_collectives(rank: int) -> Counter[str]:
    suite = MetricSuite({"mean": Mean(), "extremes": Extremes()})
    rows = MetricSuite({"rows": Rows(), "mean": Mean()})
    suite.update(value=torch.ones(2, 3))
    rows.update(
        features=torch.ones(2, 3), labels=torch.ones(2, dtype=torch.int64), value=torch.ones(2)
    )
    return counted_collectives(suite.compute) + counted_collectives(rows.compute)


def test_one_collective_for_each_kind_of_reduction(room: int) -> None:
    # Sum, maxima of floats and of integers, minima; then sum and rows; manifests in two parts.
    apart = {"all_gather": 5, "all_reduce": 5}
    assert run_ranks(_mixed_collectives, 2)[0] == ({"all_gather": 2} if room == 4096 else apart)


def _large(rank: int) -> tuple[Counter[str], Any]:
    value = torch.linspace(-1, 1, 5000).expand(2, -1) + torch.tensor([[0.0], [2.0 * rank]])
    suite = MetricSuite({"spread": Spread(), "extremes": Extremes(), "rows": Rows()})
    suite.update(value=value, features=value[:, :3000], labels=torch.arange(2) + rank)
    results: list[Any] = []
    return counted_collectives(lambda: results.append(suite.compute())), results[0]


def test_large_states_travel_apart_from_the_manifest(room: int) -> None:
    (used, first), (_, second) = run_ranks(_large, 2)
    assert used == {"all_gather": 2 if room == 4096 else 3, "all_reduce": 3}
    assert_same(first, second, 0.0)
    line = torch.linspace(-1, 1, 5000).double()
    torch.testing.assert_close(first["spread"], line + 0.5)
    torch.testing.assert_close(first["spread_variance"], torch.full_like(line, 0.75))
    torch.testing.assert_close(first["extremes"], line + 2)
    torch.testing.assert_close(first["extremes_bottom"], line)


# ---------------------------------------------------------------------------- uneven ranks


def _ragged(rank: int, logits: list[torch.Tensor], labels: list[torch.Tensor]) -> Any:
    suite = MetricSuite(
        {"accuracy": TemporalAccuracy(confidence=0.95), "macro": TemporalAccuracy(average="macro")}
    )
    if rank < len(logits):
        suite.update(preds=logits[rank], target=labels[rank])
    first = quietly(suite.compute)
    # Local state is back, and what follows counts.
    suite.update(preds=logits[0], target=labels[0])
    return first, suite.compute()


def test_ranks_with_20_with_22_and_without_timesteps() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = [
        torch.randn(5, 20, 7, generator=generator),
        torch.randn(3, 22, 7, generator=generator),
    ]
    labels = [torch.randint(-1, 7, x.shape[:2], generator=generator) for x in logits]
    alone = MetricSuite(
        {"accuracy": TemporalAccuracy(confidence=0.95), "macro": TemporalAccuracy(average="macro")}
    )
    for x, y in zip(logits, labels, strict=True):
        alone.update(preds=x, target=y)
    first = alone.compute()
    for _ in range(3):
        alone.update(preds=logits[0], target=labels[0])
    for results in run_ranks(_ragged, 3, logits, labels):
        assert_same(results[0], first, 0.0)
        assert_same(results[1], alone.compute(), 0.0)


def _idle_rows(rank: int, updates: list[int]) -> Any:
    metric = Rows()
    for i in range(updates[rank]):
        metric.update(torch.full((2, 3), float(i + 1)), torch.tensor([rank, i]))
    return quietly(metric.compute)


@pytest.mark.parametrize("updates", [[0, 2], [3, 1], [0, 0], [1, 0, 4]])
def test_rows_of_ranks_that_updated_unequally(updates: list[int]) -> None:
    alone = Rows()
    for rank, n in enumerate(updates):
        for i in range(n):
            alone.update(torch.full((2, 3), float(i + 1)), torch.tensor([rank, i]))
    for result in run_ranks(_idle_rows, len(updates), updates):
        assert_same(result, quietly(alone.compute), 1e-9)


def _cached_on_one_rank(rank: int) -> list[float]:
    metric = Mean()
    metric.update(torch.ones(1))
    values = [float(metric.compute())]
    if rank == 0:
        metric.update(torch.tensor([4.0]))
    # Rank 1 has nothing new, yet must take part.
    return [*values, float(metric.compute())]


def test_a_rank_without_news_does_not_answer_from_its_cache() -> None:
    assert run_ranks(_cached_on_one_rank, 2) == [[1.0, 2.0], [1.0, 2.0]]


# ---------------------------------------------------------------------------- disagreement


def _disagree(rank: int) -> tuple[str, float, float]:
    suite = MetricSuite({"accuracy": TemporalAccuracy(top_k=1 + rank), "mean": Mean()})
    suite.update(preds=torch.eye(3)[None], target=torch.tensor([0]), value=torch.ones(2))
    start = time.monotonic()
    text = error_of(suite.compute)
    seconds = time.monotonic() - start
    mean = suite["mean"]
    mean.sync_on_compute = mean._to_sync = False
    return text, seconds, float(mean.compute())


def test_ranks_configured_differently_get_the_same_error_at_once() -> None:
    results = run_ranks(_disagree, 2)
    assert results[0][0] == results[1][0]
    assert "accuracy: TemporalAccuracy(top_k=2)" in results[0][0]
    assert "mean" not in results[0][0]
    assert all(seconds < 5 for _, seconds, _ in results)
    assert [mean for _, _, mean in results] == [1.0, 1.0]


def _different_members(rank: int) -> str:
    members: dict[str, Metric] = {"mean": Mean()}
    if rank:
        members["extra"] = Extremes()
    suite = MetricSuite(members)
    suite.update(value=torch.ones(2, 2))
    return error_of(suite.compute)


def test_ranks_with_different_members_get_the_same_error() -> None:
    texts = run_ranks(_different_members, 3)
    assert len(set(texts)) == 1
    assert "rank 0 has less" in texts[0]
    assert "extra: Extremes()" in texts[0]


def _different_classes(rank: int) -> tuple[str, int]:
    metric = TemporalAccuracy(average="macro")
    metric.update(torch.zeros(2, 3, 4 + rank), torch.zeros(2, 3, dtype=torch.int64))
    text = error_of(metric.compute)
    return text, int(metric.counts[1].sum())


def test_shapes_that_do_not_fit_are_an_error_on_every_rank() -> None:
    results = run_ranks(_different_classes, 2)
    assert results[0][0] == results[1][0]
    assert "class_counts" in results[0][0]
    assert [valid for _, valid in results] == [6, 6]


class Broken(Rows):
    """A metric whose state one rank cannot send."""

    def spoil(self) -> None:
        self.__dict__["features"] = [torch.zeros(1, 2), torch.zeros(1, 3)]


def _one_rank_cannot_send(rank: int) -> str:
    metric = Broken()
    if rank == 1:
        metric.spoil()
    return error_of(lambda: quietly(metric.compute))


def test_a_rank_that_fails_before_sending_fails_everywhere() -> None:
    texts = run_ranks(_one_rank_cannot_send, 2)
    assert texts[0] == texts[1]
    assert "rank 1 has RuntimeError" in texts[0]


# ---------------------------------------------------------------------------- torchmetrics


def _torchmetrics_members(rank: int) -> Any:
    members: dict[str, Metric] = {
        "ours": Mean(), "sum": SumMetric(), "mean": MeanMetric(), "two": TwoSums()
    }  # fmt: skip
    suite = MetricSuite(members)
    for _ in range(rank):
        suite.update(value=torch.full((2,), float(rank)))
    used: Counter[str] = Counter()
    results: list[Any] = []
    used += counted_collectives(lambda: results.append(quietly(suite.compute)))
    suite.update(value=torch.ones(2))
    return used, results[0], suite.compute()


def test_torchmetrics_members_share_the_synchronisation(room: int) -> None:
    # Ranks 1 and 2 saw 2 ones and 4 twos; then every rank 2 ones more.
    for used, first, second in run_ranks(_torchmetrics_members, 3):
        assert used == ({"all_gather": 1} if room == 4096 else {"all_gather": 2, "all_reduce": 1})
        assert {k: float(v) for k, v in first.items()} == pytest.approx(
            {"ours": 10 / 6, "sum": 10.0, "mean": 10 / 6, "two": 10 / 6}
        )
        assert {k: float(v) for k, v in second.items()} == pytest.approx(
            {"ours": 16 / 12, "sum": 16.0, "mean": 16 / 12, "two": 16 / 12}
        )


def _in_a_metric_collection(rank: int) -> Any:
    collection = MetricCollection({"mean": Mean(), "twice": Mean(scale=2.0), "sum": SumMetric()})
    for _ in range(rank):
        collection.update(torch.full((2,), float(rank)))
    return {name: float(value) for name, value in quietly(collection.compute).items()}


def test_our_metrics_in_a_metric_collection() -> None:
    expected = {"mean": 10 / 6, "twice": 20 / 6, "sum": 10.0}
    assert run_ranks(_in_a_metric_collection, 3) == [expected] * 3


# ---------------------------------------------------------------------------- protocol


def _protocol(rank: int) -> list[Any]:
    metric = Mean()
    metric.update(torch.full((1 + rank,), float(rank)))
    seen: list[Any] = []
    metric.sync()
    seen.append((float(metric.compute()), int(metric.n)))
    for call in (lambda: metric.update(torch.ones(1)), lambda: metric(torch.ones(1)), metric.sync):
        with pytest.raises(Exception, match="not synced"):
            call()
    metric.unsync()
    seen.append(int(metric.n))
    with metric.sync_context():
        seen.append(int(metric.n))
    try:
        with metric.sync_context():
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        seen.append(int(metric.n))
    local = Mean(sync_on_compute=False)
    local.update(torch.full((1 + rank,), float(rank)))
    seen.append(float(local.compute()))
    stepwise = Mean(dist_sync_on_step=True)
    seen.append(float(stepwise(torch.full((1 + rank,), float(rank)))))
    seen.append(int(stepwise.n))
    return seen


def test_sync_unsync_and_their_options() -> None:
    first, second = run_ranks(_protocol, 2)
    both = 2 / 3
    assert first == [(both, 3), 1, 3, 1, 0.0, both, 1]
    assert second == [(both, 3), 2, 3, 2, 1.0, both, 2]


class Failing(Mean):
    """Raises in compute on request."""

    fail = True

    def compute(self) -> torch.Tensor:
        if self.fail:
            raise RuntimeError("on purpose")
        return super().compute()


def _failing_compute(rank: int) -> tuple[int, float]:
    suite = MetricSuite({"failing": Failing(), "mean": Mean()})
    suite.update(value=torch.ones(1 + rank))
    with pytest.raises(RuntimeError, match="on purpose"):
        suite.compute()
    mean: Any = suite["mean"]
    local = int(mean.n)
    suite.update(value=torch.zeros(1))
    with mock.patch.object(Failing, "fail", False):
        return local, float(suite.compute()["failing"])


def test_an_error_in_compute_leaves_local_states() -> None:
    assert run_ranks(_failing_compute, 2) == [(1, 3 / 5), (2, 3 / 5)]


def _subgroup(rank: int) -> float:
    groups = [dist.new_group([0, 1]), dist.new_group([2])]
    metric = Mean(process_group=groups[rank // 2])
    metric.update(torch.tensor([float(rank)]))
    suite = MetricSuite({"mean": metric})
    return float(suite.compute()["mean"])


def test_the_process_group_is_honoured() -> None:
    assert run_ranks(_subgroup, 3) == [0.5, 0.5, 2.0]


def _own_gather(rank: int) -> tuple[float, bool]:
    calls = []

    def gather(tensor: torch.Tensor, group: Any = None) -> list[torch.Tensor]:
        calls.append(tensor.shape)
        return gather_all_tensors(tensor, group)

    metric = Mean(dist_sync_fn=gather)
    metric.update(torch.tensor([float(rank)]))
    return float(metric.compute()), bool(calls)


def test_the_users_gather_function_is_honoured() -> None:
    assert run_ranks(_own_gather, 2) == [(0.5, True)] * 2


def _big_counts(rank: int) -> list[int]:
    metric = Accuracy()
    metric.accumulate(counts=torch.tensor([2**53 + 1, 2**61 + rank, -5, 2**32 - 1]))
    metric.sync()
    return metric.counts.tolist()


def test_counts_travel_exactly_beyond_2_to_53() -> None:
    exact = [2**54 + 2, 2**62 + 1, -10, 2**33 - 2]
    assert run_ranks(_big_counts, 2) == [exact] * 2


def _state_dict_on_one_rank(rank: int) -> int:
    metric = Mean()
    metric.update(torch.ones(1 + rank))
    return int(metric.state_dict()["n"]) if rank == 0 else 0


def test_a_checkpoint_needs_no_other_rank() -> None:
    assert run_ranks(_state_dict_on_one_rank, 2) == [1, 0]


def _padded_sampler(rank: int) -> Any:
    items: Any = range(21)
    samples: Any = torch.utils.data.DistributedSampler(items, 2, rank, shuffle=False)
    index = torch.tensor(list(samples))
    # The sampler repeats the first sample to make both shares equal; position tells the copy.
    position = torch.arange(len(index)) * 2 + rank
    metric = Mean()
    metric.update(index.double(), mask=position < 21)
    metric.sync()
    return int(metric.total), int(metric.n), len(index)


def test_21_items_on_2_ranks_count_21() -> None:
    assert run_ranks(_padded_sampler, 2) == [(210, 21, 11)] * 2


def test_a_hang_is_a_red_test() -> None:
    with pytest.raises(AssertionError, match=r"ranks \[0\] of 2 hang"):
        run_ranks(_only_rank_0, 2, patience=8)


def _only_rank_0(rank: int) -> None:
    if rank == 0:
        time.sleep(60)
    else:
        module: Any = dist
        module.destroy_process_group = module.barrier = lambda: None
