"""The 92 real images through a network, over two ranks, to the RDM and to the scores."""

from __future__ import annotations

import importlib.util
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from dynmetrics.rsa import RDM, RSA, BrainRDMs, LayerRSA, TemporalRSA
from dynmetrics.rsa.vectors import upper_triangle
from tests.contract import assert_same
from tests.ranks import run_ranks

LAYERS = ("early", "late")
# Of rsatoolbox 0.3.2, `calc_rdm` by condition, "correlation", for the presentations below: the sum
# of all distances, that of their squares, and the pairs (0, 1), (0, 91), (45, 46), (90, 91).
FROZEN = {
    "early": (2109.2402312347144, 1122.488489809566, 0.43906979971397053, 0.5847464460871084,
              0.5292157541402347, 0.6637533118640353),
    "late": (3633.8012153965587, 3304.8013965000414, 1.0624222646056962, 0.7732007985407363,
             0.45895209413407634, 0.5310357623695121),
}  # fmt: skip


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    folder = os.environ.get("DYNMETRICS_DATA")
    path = Path(folder or "") / "kriegeskorte92.npz"
    if not folder or not path.exists():
        pytest.skip("needs kriegeskorte92.npz in the folder that DYNMETRICS_DATA names")
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def network(images: Tensor) -> dict[str, Tensor]:
    """Two layers in float64, with weights by formula, so that every machine has the same."""

    def weights(out: int, inside: int) -> Tensor:
        index = torch.arange(out * inside * 25, dtype=torch.float64)
        return torch.sin(index * 1.7 + 0.3).reshape(out, inside, 5, 5) / 5

    early = functional.conv2d(images, weights(4, 3), stride=2).relu()
    late = functional.conv2d(early, weights(12, 4), stride=3).relu()
    return {"early": early, "late": late}


def presentations(images: Any) -> tuple[dict[str, Tensor], Tensor]:
    """Each image shown two to four times, never quite alike, in shuffled order."""
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).to(torch.float64) / 255
    small = functional.avg_pool2d(pixels, 5)
    shown = torch.tensor([i for i in range(92) for _ in range(2 + i % 3)])
    shown = shown[torch.from_numpy(np.random.default_rng(0).permutation(len(shown)))]
    jitter = 1 + 0.2 * torch.sin(torch.arange(len(shown), dtype=torch.float64) * 3.1)
    return network(small[shown] * jitter.view(-1, 1, 1, 1)), shown


def batches_of(rank: int) -> list[slice]:
    """Uneven batches, and more for rank 0 than for rank 1."""
    edges = [0, 5, 6, 40, 97, 101, 160, 200, 275]
    slices = [slice(a, b) for a, b in itertools.pairwise(edges)]
    return [s for i, s in enumerate(slices) if (i % 3 == 2) == (rank == 1)]


def on_rank(rank: int, metrics: list[Any], activations: dict[str, Tensor], shown: Tensor) -> Any:
    for rows in batches_of(rank):
        batch = {name: values[rows] for name, values in activations.items()}
        for metric in metrics:
            metric.update(batch, shown[rows])
    return [metric.compute() for metric in metrics]


def of_rsatoolbox(activations: Tensor, shown: Tensor) -> Tensor:
    from rsatoolbox.data import Dataset
    from rsatoolbox.rdm import calc_rdm

    dataset = Dataset(activations.flatten(1).numpy(), obs_descriptors={"image": shown.numpy()})
    vectors = calc_rdm(dataset, method="correlation", descriptor="image").dissimilarities
    return torch.from_numpy(np.asarray(vectors[0]))


def summary(vector: Tensor) -> list[float]:
    rows, columns = torch.triu_indices(92, 92, 1)
    matrix = torch.zeros(92, 92, dtype=torch.float64)
    matrix[rows, columns] = vector
    pairs = [(0, 1), (0, 91), (45, 46), (90, 91)]
    return [float(vector.sum()), float(vector.square().sum()), *(float(matrix[p]) for p in pairs)]


def test_streamed_over_two_ranks(data: dict[str, Any]) -> None:
    activations, shown = presentations(data["images"])
    assert len(shown) == 275
    subjects = torch.from_numpy(data["human_it_rdms"]).to(torch.float64).mean(1)
    brain = BrainRDMs(subjects, name="IT")
    metrics: list[Any] = [RDM(conditions=92, network_output=layer) for layer in LAYERS]
    metrics += [RSA(brain, network_output="late"), LayerRSA(layers=LAYERS, targets={"IT": brain})]
    both = run_ranks(on_rank, 2, metrics, activations, shown)
    for one, other in zip(*both, strict=True):
        assert_same(one, other, 0.0)
    rdms = dict(zip(LAYERS, both[0], strict=False))
    for layer in LAYERS:
        vector = upper_triangle(rdms[layer])
        if importlib.util.find_spec("rsatoolbox"):
            expected = of_rsatoolbox(activations[layer], shown)
            torch.testing.assert_close(vector, expected, rtol=0, atol=1e-9)
        found = torch.tensor(summary(vector), dtype=torch.float64)
        frozen = torch.tensor(FROZEN[layer], dtype=torch.float64)
        torch.testing.assert_close(found, frozen, rtol=1e-9, atol=1e-9)
    score, table = both[0][2], both[0][3]
    torch.testing.assert_close(table["score"][1, 0], score["score"])
    assert float(score["ceiling_upper"]) == pytest.approx(0.6606844084712746, rel=1e-6)
    assert int(score["n_pairs"]) == 92 * 91 // 2


def test_categories_against_the_brain_over_time(data: dict[str, Any]) -> None:
    """A network that first sees pixels and then what is alive agrees with IT later."""
    pixels = torch.from_numpy(data["images"]).to(torch.float32).flatten(1)[:, ::97]
    alive = torch.from_numpy(data["animate"]).to(torch.float32).unsqueeze(1)
    late = torch.cat([alive, 1 - alive, pixels[:, :3] / 2550], 1)
    late = torch.nn.functional.pad(late, (0, pixels.shape[1] - late.shape[1]))
    activations = torch.stack([pixels, late], 1)
    metric = TemporalRSA(torch.from_numpy(data["human_it_rdms"]).mean(1))
    for rows in torch.split(torch.randperm(92), 20):
        metric.update(activations[rows], rows)
    result = metric.compute()
    assert int(result["peak_step"]) == 1
    assert float(result["rho"][1, 0]) > float(result["rho"][0, 0])
