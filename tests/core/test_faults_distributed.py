"""Known faults of metrics over several ranks, each beside what plain torchmetrics does."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchmetrics import MeanMetric, Metric

from dynmetrics import MetricSuite, SuccessRate, TemporalAccuracy
from dynmetrics.core.exchange import Exchange, exchange_for
from tests.contract import assert_same, fed
from tests.core.toys import Extremes, Mean, Rows, Spread
from tests.ranks import run_ranks

# ---------------------------------------------------------------- padding by a sampler

N_ITEMS = 21
SUCCESSES = 1


class PaddedDistributedSampler(DistributedSampler[Any]):
    """Tells which of its samples repeat another one, for the mask."""

    def __iter__(self) -> Any:
        n = len(self.dataset)  # type: ignore[arg-type]
        for turn, index in enumerate(super().__iter__()):
            yield index, turn * self.num_replicas + self.rank < n


class Episodes(TensorDataset):
    """Only the first episode succeeds, and that is the one which padding repeats."""

    def __init__(self) -> None:
        super().__init__(torch.arange(N_ITEMS) < SUCCESSES)

    def __getitem__(self, item: Any) -> Any:
        index, real = item if isinstance(item, tuple) else (item, True)
        return self.tensors[0][index], real


def _padded(rank: int) -> tuple[dict[str, Tensor], dict[str, Tensor], float, int]:
    data = Episodes()
    masked, unpadded, theirs = SuccessRate(), SuccessRate(), MeanMetric()
    sampler = PaddedDistributedSampler(data, 2, rank, shuffle=False)
    for success, real in DataLoader(data, batch_size=4, sampler=sampler):
        masked.update(success[real])
        theirs.update(success.float())
    for success, _ in DataLoader(data, batch_size=4, sampler=range(rank, N_ITEMS, 2)):
        unpadded.update(success)
    weight = theirs.weight.clone()
    dist.all_reduce(weight)
    return masked.compute(), unpadded.compute(), float(theirs.compute()), int(weight)


def test_21_items_on_2_ranks_count_21_by_a_mask_and_by_an_unpadded_sampler() -> None:
    alone = SuccessRate()
    alone.update(torch.arange(N_ITEMS) < SUCCESSES)
    for masked, unpadded, theirs, counted in run_ranks(_padded, 2):
        assert_same(masked, alone.compute(), 0.0)
        assert_same(unpadded, alone.compute(), 0.0)
        assert int(masked["n"]) == N_ITEMS
        assert (theirs, counted) == (pytest.approx(2 / 22), 22)


def _padded_accuracy(rank: int) -> dict[str, Tensor]:
    target = torch.arange(N_ITEMS) % 3
    logits = torch.nn.functional.one_hot(torch.arange(N_ITEMS) // 2 % 3, 3).float()
    data = TensorDataset(logits, target, torch.arange(N_ITEMS))
    sampler: DistributedSampler[Any] = DistributedSampler(data, 2, rank, shuffle=False)
    metric, seen = TemporalAccuracy(), 0
    for preds, labels, index in DataLoader(data, batch_size=4, sampler=sampler):
        # Without shuffling, position and index agree unless the sampler has started again.
        position = (seen + torch.arange(len(index))) * 2 + rank
        metric.update(preds[:, None], labels[:, None], mask=(position == index)[:, None])
        seen += len(index)
    return metric.compute()


def test_21_labels_on_2_ranks_count_21_by_the_mask_of_update() -> None:
    target = torch.arange(N_ITEMS) % 3
    correct = int((target == torch.arange(N_ITEMS) // 2 % 3).sum())
    for result in run_ranks(_padded_accuracy, 2):
        assert result["valid"].tolist() == [N_ITEMS]
        assert float(result["overall"]) == correct / N_ITEMS


# ---------------------------------------------------------------- results on one rank only


def _offline(rank: int, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every rank saves; rank 0 alone merges and computes, with every collective forbidden."""
    offline = {"sync_on_compute": False}
    members = {"mean": Mean(**offline), "ends": Extremes(**offline), "spread": Spread(**offline)}
    suite = MetricSuite(members)
    forbidden = mock.Mock(side_effect=AssertionError("a collective"))
    names = ("all_gather", "all_reduce", "barrier", "broadcast", "all_gather_into_tensor")
    with mock.patch.multiple(dist, **dict.fromkeys(names, forbidden)):
        for _ in range(rank):
            suite.update(value=torch.full((2, 1 + rank), float(rank)))
        torch.save(suite.state_dict(), folder / f"{rank}.pt")
    dist.barrier()
    if rank:
        return {}, {}
    with mock.patch.multiple(dist, **dict.fromkeys(names, forbidden)):
        for other in range(1, 3):
            saved = torch.load(folder / f"{other}.pt", weights_only=True)
            part = suite.clone()
            part.load_state_dict(saved)
            for name, metric in part.items():
                suite[name].merge_state(metric)
        loose = Mean(sync_on_compute=False)
        for other in range(3):
            file = torch.load(folder / f"{other}.pt", weights_only=True)
            prefix = "metrics.mean."
            loose.merge_state({k.removeprefix(prefix): v for k, v in file.items() if prefix in k})
        mean = {"mean": loose.compute(), "updates": loose.update_count}
        return suite.compute(), mean


def test_rank_0_alone_computes_from_what_the_ranks_saved(tmp_path: Path) -> None:
    alone = MetricSuite({"mean": Mean(), "ends": Extremes(), "spread": Spread()})
    for rank in range(3):
        for _ in range(rank):
            alone.update(value=torch.full((2, 1 + rank), float(rank)))
    merged, loose = run_ranks(_offline, 3, tmp_path)[0]
    assert_same(merged, alone.compute(), 1e-12)
    assert loose["updates"] == 3
    assert_same(loose["mean"], alone["mean"].compute(), 0.0)


def test_states_of_another_configuration_are_not_merged() -> None:
    metric, other = fed(Mean(), [{"value": torch.ones(3)}]), Mean(scale=2.0)
    other.update(torch.ones(2))
    for states in (other.state_dict(), other.metric_state, {**metric.state_dict(), "identity": 3}):
        with pytest.raises(ValueError, match=r"merge_state: expected Mean\(\), got"):
            metric.merge_state(states)
    assert (metric.update_count, float(metric.compute())) == (1, 1.0)


# ---------------------------------------------------------------- an error in compute


class FailingOnce(Mean):
    """Raises in the first compute, on one rank, after the states have been exchanged."""

    fails = False

    def compute(self) -> Tensor:
        if self.fails:
            self.fails = False
            raise RuntimeError("on purpose")
        return super().compute()


class TheirFailingOnce(Metric):
    """The same in plain torchmetrics."""

    full_state_update = False
    total: Tensor
    fails = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), "sum")

    def update(self, value: Tensor) -> None:
        self.total = self.total + value.sum()

    def compute(self) -> Tensor:
        if self.fails:
            raise RuntimeError("on purpose")
        return self.total


def _failing(rank: int) -> tuple[list[float], float]:
    metric, theirs = FailingOnce(), TheirFailingOnce()
    metric.update(torch.full((2,), float(rank)))
    theirs.update(torch.full((2,), float(rank + 1)))
    metric.fails = theirs.fails = rank == 1
    for broken in (metric, theirs):
        if rank == 1:
            with pytest.raises(RuntimeError, match="on purpose"):
                broken.compute()
        else:
            broken.compute()
    seen = [float(metric.n), float(metric._is_synced), float(metric._to_sync)]
    metric.update(torch.ones(1))
    return [*seen, float(metric.compute())], float(theirs.total)


def test_an_error_in_compute_on_one_rank_leaves_the_local_state() -> None:
    (first, _), (second, theirs) = run_ranks(_failing, 2)
    assert first == second == [2.0, 0.0, 1.0, 4 / 6]
    # Where ours has its 2 samples, theirs has kept the sum of both ranks as its own.
    assert theirs == 6.0


# ---------------------------------------------------------------- where tensors lie to travel


@pytest.mark.parametrize(
    ("backend", "local", "travels"),
    [
        ("gloo", "cpu", "cpu"),
        ("gloo", "cuda:1", "cpu"),
        ("nccl", "cuda:1", "cuda:1"),
        ("nccl", "cpu", "cuda"),
        ("cpu:gloo,cuda:nccl", "cuda:1", "cuda:1"),
        ("undefined", "cpu", "cpu"),
    ],
)
def test_states_on_the_host_reach_a_backend_that_takes_cuda_only(
    backend: str, local: str, travels: str
) -> None:
    group = object()
    with mock.patch.object(dist, "get_backend", side_effect=lambda g: {group: backend}[g]):
        assert Exchange(group).device(torch.device(local)) == torch.device(travels)


def test_the_users_gather_function_gets_tensors_where_they_are() -> None:
    exchange = exchange_for(lambda tensor, group=None: [tensor], None)
    assert exchange.device(torch.device("meta")) == torch.device("meta")


def _host_states(rank: int) -> Any:
    metric = Rows(compute_on_cpu=True)
    metric.update(torch.full((1 + rank, 2), float(rank)), torch.zeros(1 + rank, dtype=torch.int64))
    return metric.compute()


def test_rows_held_on_the_host_are_synchronised() -> None:
    for result in run_ranks(_host_states, 2):
        assert int(result["n"]) == 3
        assert result["total"].tolist() == [2.0, 2.0]


# ---------------------------------------------------------------- means of means


class MeanOfMeans(Metric):
    """A mean as torchmetrics lets one write it: reduced as a mean."""

    full_state_update = False
    value: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("value", torch.zeros(()), "mean")

    def update(self, value: Tensor) -> None:
        self.value = value.mean()

    def compute(self) -> Tensor:
        return self.value


def _unequal(rank: int) -> tuple[float, float]:
    ours, theirs = Mean(), MeanOfMeans()
    for metric in (ours, theirs):
        metric.update([torch.ones(4), torch.full((1,), 5.0)][rank])
    return float(ours.compute()), float(theirs.compute())


def test_batches_of_4_and_1_are_pooled() -> None:
    ours, theirs = Mean(), MeanOfMeans()
    for metric in (ours, theirs):
        metric(torch.ones(4))
        metric(torch.full((1,), 5.0))
    assert float(ours.compute()) == pytest.approx(1.8)
    assert float(theirs.compute()) == 3.0
    for pooled, mean_of_means in run_ranks(_unequal, 2):
        assert pooled == pytest.approx(1.8)
        assert mean_of_means == 3.0


def test_shards_of_1_and_3_updates_are_merged_by_their_counts() -> None:
    merged = []
    for kind in (Mean, MeanOfMeans):
        short, long = kind(), kind()
        short.update(torch.ones(1))
        for _ in range(3):
            long.update(torch.full((1,), 5.0))
        short.merge_state(long)
        merged.append(float(short.compute()))
        assert short.update_count == (4 if kind is Mean else 1)
    assert merged[0] == 4.0
    assert merged[1] != 4.0
