"""RSA, TemporalRSA and LayerRSA under contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dynmetrics import MetricSuite
from dynmetrics.rsa import (
    RSA,
    BrainRDMs,
    LayerRSA,
    TemporalRSA,
    algonauts_score,
    compare_rdms,
    noise_ceiling,
    rdm,
    spearman,
)
from dynmetrics.rsa.vectors import square, upper_triangle
from tests.contract import Batch, assert_same
from tests.reference import rsa as reference
from tests.rsa.cases import PatternContract, patterns_with

IDS = [5, 3, 8, 1, 9, 2]
SIGNAL = torch.randn(15, generator=torch.Generator().manual_seed(1), dtype=torch.float64).abs() + 1


def brain(*shape: int, noise: float = 0.3) -> Tensor:
    """RDMs of subjects that share a signal."""
    generator = torch.Generator().manual_seed(2)
    own = torch.randn(*shape, 15, generator=generator, dtype=torch.float64)
    return square(SIGNAL + noise * own)


def mean_rdm(batches: list[Batch], name: str = "activations", step: int | None = None) -> Any:
    """The correlation RDM vector of the mean patterns of a stream."""
    parts, condition = [], []
    for batch in batches:
        activations = batch[name].numpy()
        if step is not None:
            if activations.shape[1] <= step:
                continue
            activations = activations[:, step]
        parts.append(activations)
        condition += batch["condition"].tolist()
    means = reference.condition_means(np.concatenate(parts), condition, IDS)
    return reference.upper(reference.rdm(means))


class TestRSA(PatternContract):
    options: dict[str, Any] = {}  # noqa: RUF012
    brain = brain(4)

    def make(self) -> RSA:
        return RSA(brain=self.brain, conditions=IDS, missing="nan", **self.options)

    def batches(self, seed: int = 0) -> list[Batch]:
        generator = torch.Generator().manual_seed(seed)
        return [
            {
                "activations": torch.randn(n, 7, generator=generator, dtype=torch.float64),
                "condition": torch.tensor(IDS)[torch.randint(6, (n,), generator=generator)],
            }
            for n in (9, 2, 0, 5, 11)
        ]

    def reference(self, batches: list[Batch]) -> Any:
        model = mean_rdm(batches)
        subjects = self.brain.reshape(4, -1, 6, 6).numpy()
        vectors = np.stack([[reference.upper(m) for m in subject] for subject in subjects])
        options = {"recipe": self.options.get("recipe", "mean-rdm")}
        options["method"] = self.options.get("comparison", "spearman")
        return reference.score(model, vectors, drop_model_nan=True, **options)

    def rivals(self) -> list[tuple[Any, Any, Batch]]:
        first = self.batches()[0]
        others = [
            RSA(brain=self.brain + 1, conditions=IDS, missing="nan", **self.options),
            RSA(brain=self.brain, conditions=IDS[::-1], missing="nan", **self.options),
            RSA(brain=self.brain, conditions=IDS, missing="nan", recipe="none"),
        ]
        return [(self.make(), other, first) for other in others]

    def bad_inputs(self) -> list[Batch]:
        good = self.batches()[0]
        return [
            {**good, "activations": {"IT": good["activations"]}},
            {**good, "activations": good["activations"][:, :3]},
            {**good, "condition": good["condition"][:4]},
            {**good, "condition": [5, 3, 8, 1, 9, 2, 5, 3, 4]},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        good = brain(4)
        crooked = good.clone()
        crooked[0, 1, 2] += 1
        holes = good.clone()
        holes[0, 1, 2] = holes[0, 2, 1] = torch.nan
        named = BrainRDMs(good, tuple("abcdef"))
        return [
            lambda: RSA(brain=None),  # type: ignore[arg-type]
            lambda: RSA(brain=torch.zeros(5)),
            lambda: RSA(brain=torch.zeros(4, 5, 6)),
            lambda: RSA(brain=torch.zeros(1, 1)),
            lambda: RSA(brain=crooked),
            lambda: RSA(brain=holes),
            lambda: RSA(brain=holes, comparison="whitened-cosine", nan_policy="pairwise"),
            lambda: RSA(brain=good, conditions=5),
            lambda: RSA(brain=good, conditions=[1, 2, 3, 4, 5, 5]),
            lambda: RSA(brain=named, conditions=["a", "b", "z"]),
            lambda: RSA(brain=named, conditions=["a"]),
            lambda: RSA(brain=good, recipe="algonauts2023"),
            lambda: RSA(brain=good, comparison="kendall"),
            lambda: RSA(brain=good, nan_policy="omit"),
            lambda: RSA(brain=good, shuffles=-1),
            lambda: RSA(brain=good, shuffles=True),
            lambda: RSA(brain=good, shuffles=2, shuffle_seed=2**70),
            lambda: RSA(brain=good, projection=2, projection_seed=2**70),
            lambda: BrainRDMs(good, name=3),  # type: ignore[arg-type]
            lambda: BrainRDMs(brain(4, 2), times=["0 ms", "1 ms"]),  # type: ignore[arg-type]
            lambda: BrainRDMs(brain(4, 2), times="ab"),  # type: ignore[arg-type]
            lambda: BrainRDMs(brain(4, 2), times=torch.tensor([0.0, torch.nan])),
            lambda: BrainRDMs(brain(4, 2), times=torch.tensor([True, False])),
            lambda: BrainRDMs(brain(4, 2), times=torch.tensor([0j, 1j])),
            lambda: noise_ceiling(good, squared="yes"),  # type: ignore[arg-type]
            lambda: BrainRDMs(good, times=torch.arange(4)),
            lambda: BrainRDMs(good, tuple("abcde")),
        ]

    def kernel(self) -> tuple[Any, Any]:
        generator = torch.Generator().manual_seed(0)
        return spearman, torch.randint(9, (2, 30), generator=generator).unbind()


class TestMegTrack(TestRSA):
    options = {"recipe": "algonauts2019"}  # noqa: RUF012
    optout = {"ranks_equal_one_process": "states as in TestRSA"}  # noqa: RUF012
    brain = brain(4, 3)


@pytest.mark.parametrize("comparison", list(reference.COMPARISONS))
def test_every_comparison(comparison: str) -> None:
    case = TestRSA()
    case.options = {"comparison": comparison}
    metric, batches = case.make(), case.batches()
    for batch in batches:
        metric.update(**batch)
    assert_same(metric.compute(), case.reference(batches), 1e-9)


class TestTemporalRSA(PatternContract):
    brain = brain(4, 3)

    def make(self) -> TemporalRSA:
        return TemporalRSA(brain=self.brain, conditions=IDS, missing="nan")

    def batches(self, seed: int = 0) -> list[Batch]:
        generator = torch.Generator().manual_seed(seed)
        return [
            {
                "activations": torch.randn(n, t, 7, generator=generator, dtype=torch.float64),
                "condition": torch.tensor(IDS)[torch.randint(6, (n,), generator=generator)],
            }
            for n, t in ((12, 2), (2, 1), (0, 2), (13, 4))
        ]

    def reference(self, batches: list[Batch]) -> Any:
        longest = max(
            (b["activations"].shape[1] for b in batches if len(b["condition"])), default=0
        )
        rows: dict[str, list[Any]] = {}
        vectors = reference_vectors(self.brain)
        for t_model in range(longest):
            model = mean_rdm(batches, step=t_model)
            by_time = [
                reference.score(model, vectors[:, t : t + 1], drop_model_nan=True) for t in range(3)
            ]
            for name in ("rho", "score", "score_mean_rdm", "score_algonauts2019", "rho_mean_rdm"):
                rows.setdefault(name, []).append([cell[name] for cell in by_time])
            rows.setdefault("r2", []).append([cell["r2"] for cell in by_time])
            window = reference.score(model, vectors, drop_model_nan=True)
            rows.setdefault("score_window", []).append(window["score_algonauts2019"])
            rows.setdefault("n_pairs", []).append(window["n_pairs"])
        maps = {name: np.array(values) for name, values in rows.items()}
        if not maps:
            names = ("rho", "score", "score_mean_rdm", "score_algonauts2019", "rho_mean_rdm", "r2")
            maps = {name: np.zeros((0, 3)) for name in names}
            maps |= {"score_window": np.zeros(0), "n_pairs": np.zeros(0, dtype=np.int64)}
        score = maps["score"]
        peak: dict[str, Any] = {"score_peak": np.nan, "peak_step": -1, "peak_time": -1}
        if np.isfinite(score).any():
            step, time = divmod(int(np.nanargmax(score)), 3)
            peak = {"score_peak": np.nanmax(score), "peak_step": step, "peak_time": time}
        bounds = [reference.ceiling(vectors[:, t]) for t in range(3)]
        ceilings = {}
        for side, name in enumerate(("upper", "lower")):
            ceilings[f"ceiling_{name}"] = np.array([b[side].mean() for b in bounds])
            ceilings[f"ceiling_{name}_r2"] = np.array([(b[side] ** 2).mean() for b in bounds])
        return {**maps, **{k: np.array(v) for k, v in peak.items()}, **ceilings}

    def rivals(self) -> list[tuple[Any, Any, Batch]]:
        other = TemporalRSA(brain=self.brain, conditions=IDS, missing="nan", window=(0, 1))
        return [(self.make(), other, self.batches()[0])]

    def bad_inputs(self) -> list[Batch]:
        good = self.batches()[0]
        return [
            {**good, "activations": good["activations"][:, 0]},
            {**good, "condition": good["condition"].float()},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        good = brain(4, 3)
        timed = BrainRDMs(good, times=torch.tensor([0.1, 0.2, 0.3]))
        return [
            lambda: TemporalRSA(brain=good, layout="TBC"),
            lambda: TemporalRSA(brain=good, window=(7, 9)),
            lambda: TemporalRSA(brain=good, window=3),  # type: ignore[arg-type]
            lambda: TemporalRSA(brain=good[:, 0], window=(0, 1)),
            lambda: TemporalRSA(brain=timed, window=(1, 2)),
        ]

    def kernel(self) -> tuple[Any, Any]:
        return TestRSA().kernel()


def reference_vectors(brains: Tensor) -> Any:
    return np.stack([[reference.upper(m) for m in subject] for subject in brains.numpy()])


class TestLayerRSA(PatternContract):
    optout = {  # noqa: RUF012
        "half_precision_inputs": "a mapping of layers; see TestRSA",
        "inputs_stay_and_no_graph_is_kept": "a mapping of layers; see TestRSA",
    }

    def targets(self) -> dict[str, Tensor]:
        return {"EVC": brain(4), "IT": brain(3, noise=0.5)}

    def make(self) -> LayerRSA:
        return LayerRSA(layers=("V1", "V4", "IT"), targets=self.targets(), conditions=IDS,
                        missing="nan", recipe="algonauts2019")  # fmt: skip

    def batches(self, seed: int = 0) -> list[Batch]:
        generator = torch.Generator().manual_seed(seed)
        batches: list[Batch] = []
        for n in (9, 3, 0, 11):
            condition = torch.tensor(IDS)[torch.randint(6, (n,), generator=generator)]
            shapes = {"V1": (2, 4), "V4": (7,), "IT": (5,), "unused": (3,)}
            activations = {
                name: torch.randn(n, *shape, generator=generator, dtype=torch.float64)
                for name, shape in shapes.items()
            }
            batches.append({"condition": condition, "activations": activations})
        return batches

    def piece(self, batch: Batch, start: int, stop: int) -> Batch:
        layers = {name: value[start:stop] for name, value in batch["activations"].items()}
        return {"condition": batch["condition"][start:stop], "activations": layers}

    def reference(self, batches: list[Batch]) -> Any:
        names = ("score", "score_mean_rdm", "score_algonauts2019", "rho", "rho_mean_rdm", "r2")
        tables: dict[str, Any] = {name: np.zeros((3, 2)) for name in names}
        tables["n_pairs"] = np.zeros((3, 2), dtype=np.int64)
        ceilings: dict[str, Any] = {}
        for g, rdms in enumerate(self.targets().values()):
            vectors = reference_vectors(rdms.unsqueeze(1))
            for i, layer in enumerate(("V1", "V4", "IT")):
                flat = [
                    {"x": b["activations"][layer].flatten(1), "condition": b["condition"]}
                    for b in batches
                ]
                model = mean_rdm(flat, "x")
                cell = reference.score(model, vectors, "algonauts2019", drop_model_nan=True)
                for name, table in tables.items():
                    table[i, g] = cell[name]
            bounds = reference.ceiling(vectors[:, 0])
            for side, name in enumerate(("upper", "lower")):
                ceilings.setdefault(f"ceiling_{name}", []).append(bounds[side].mean())
                ceilings.setdefault(f"ceiling_{name}_r2", []).append((bounds[side] ** 2).mean())
        ceilings = {name: np.array(values) for name, values in ceilings.items()}
        score = tables["score"]
        best = np.array([-1 if np.isnan(c).all() else np.nanargmax(c) for c in score.T])
        chosen = [np.nan if b < 0 else tables["r2"][b, g] for g, b in enumerate(best)]
        return {
            **tables,
            **ceilings,
            "best_layer": best,
            "best_score": np.array([np.nan if b < 0 else score[b, g] for g, b in enumerate(best)]),
            "track_score": 100 * np.mean(chosen) / ceilings["ceiling_upper_r2"].mean(),
        }

    def rivals(self) -> list[tuple[Any, Any, Batch]]:
        other = LayerRSA(layers=("IT", "V4", "V1"), targets=self.targets(), conditions=IDS,
                         missing="nan")  # fmt: skip
        return [(self.make(), other, self.batches()[0])]

    def bad_inputs(self) -> list[Batch]:
        good = self.batches()[0]
        layers = good["activations"]
        return [
            {**good, "activations": layers["IT"]},
            {**good, "activations": {"V1": layers["V1"], "V4": layers["V4"]}},
            {**good, "activations": {**layers, "IT": layers["IT"][:3]}},
        ]

    def bad_options(self) -> list[Callable[[], Any]]:
        good = {"IT": brain(4)}
        named = BrainRDMs(brain(4), tuple("abcdef"))
        return [
            lambda: LayerRSA(layers="IT", targets=good),
            lambda: LayerRSA(layers=["IT", "IT"], targets=good),
            lambda: LayerRSA(layers=[], targets=good),
            lambda: LayerRSA(layers=["IT"], targets={}),
            lambda: LayerRSA(layers=["IT"], targets={3: good["IT"]}),  # type: ignore[dict-item]
            lambda: LayerRSA(layers=["IT"], targets={**good, "EVC": named}),
        ]

    def kernel(self) -> tuple[Any, Any]:
        return TestRSA().kernel()


# ---------------------------------------------------------------------------- scores


def fed_with(metric: Any, rdm_vector: Any) -> Any:
    patterns = patterns_with(rdm_vector)
    ids = getattr(metric, "conditions").ids  # noqa: B009
    metric.update(patterns, list(ids))
    return metric.compute()


def test_a_model_may_pass_the_ceiling_and_is_not_clipped() -> None:
    subjects = upper_triangle(brain(4))
    metric = RSA(brain=brain(4), dissimilarity="cityblock")
    result = fed_with(metric, subjects.mean(0))
    assert float(result["score_mean_rdm"]) > 100
    assert float(result["score_algonauts2019"]) == pytest.approx(100)


def test_a_similarity_given_for_a_dissimilarity_shows_in_the_sign() -> None:
    """The score of the opposite of a brain is as high: only rho tells."""
    signal = upper_triangle(brain(4)).mean(0)
    metric = RSA(brain=brain(4), dissimilarity="cityblock")
    result = fed_with(metric, -signal)
    assert float(result["score_algonauts2019"]) == pytest.approx(100)
    assert float(result["rho_mean_rdm"]) == pytest.approx(-1)


def test_squares_are_divided_by_squares() -> None:
    """A rho of 0.5 under 0.64: (r/c)^2 is 0.61, r^2/c is 0.39; recipes say which."""
    result = fed_with(RSA(brain=brain(4), dissimilarity="cityblock"), SIGNAL.round(decimals=3))
    mean, upper = result["rho_mean_rdm"], result["ceiling_upper"]
    torch.testing.assert_close(result["score_mean_rdm"], 100 * mean**2 / upper)
    bound = result["ceiling_upper_r2"]
    torch.testing.assert_close(result["score_algonauts2019"], 100 * result["r2"] / bound)
    torch.testing.assert_close(result["rho_per_subject"].square().mean(), result["r2"])
    torch.testing.assert_close(result["rho_per_subject"].mean(), result["rho"])


def test_one_subject_has_no_ceiling() -> None:
    """The same subject on both sides would always agree."""
    found = noise_ceiling(brain(1))
    assert bool(found["upper"].isnan() & found["lower"].isnan())
    metric = RSA(brain=brain(1)[0], dissimilarity="cityblock")
    with pytest.warns(UserWarning, match="one subject has no noise ceiling"):
        result = fed_with(metric, SIGNAL)
    assert bool(result["score"].isnan())
    assert float(result["rho"]) > 0.5
    quiet = RSA(brain=brain(1)[0], dissimilarity="cityblock", recipe="none")
    assert float(fed_with(quiet, SIGNAL)["score"]) > 25


def test_a_ceiling_that_is_not_positive_gives_no_score() -> None:
    # One subject, on another scale, outweighs four that contradict it.
    vectors = torch.stack([SIGNAL, SIGNAL, SIGNAL, SIGNAL, -100 * SIGNAL])
    assert float(noise_ceiling(vectors)["upper"]) == pytest.approx(-0.6)
    with pytest.warns(UserWarning, match=r"upper noise ceiling -0.6 is not positive"):
        assert bool(algonauts_score(SIGNAL, vectors).isnan())
    metric = RSA(square(vectors), dissimilarity="cityblock")
    with pytest.warns(UserWarning, match="is not positive, so the score is NaN"):
        result = fed_with(metric, SIGNAL)
    assert bool(result["score"].isnan())
    assert float(result["score_algonauts2019"]) == pytest.approx(100)


def test_ceilings_of_noise_come_with_a_warning() -> None:
    noise = torch.randn(15, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ceiling = noise_ceiling(noise)
    assert float(ceiling["upper"]) == pytest.approx(15**-0.5, abs=0.03)
    with pytest.warns(UserWarning, match="15 subjects without any common signal"):
        algonauts_score(noise[0], noise)


def test_missing_conditions_are_left_out_of_everything() -> None:
    patterns = torch.randn(6, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    metric = RSA(brain=BrainRDMs(brain(4), tuple("abcdef")), missing="nan")
    metric.update(patterns[:5], list("abcde"))
    result = metric.compute()
    assert int(result["n_pairs"]) == 10
    part = RSA(brain=BrainRDMs(brain(4), tuple("abcdef")), conditions=list("abcde"))
    part.update(patterns[:5], list("abcde"))
    assert_same(result, part.compute(), 1e-12)
    strict = RSA(brain=BrainRDMs(brain(4), tuple("abcdef")))
    strict.update(patterns[:5], list("abcde"))
    with pytest.raises(ValueError, match="none of 'f'"):
        strict.compute()


def test_a_subset_of_conditions_in_another_order() -> None:
    patterns = torch.randn(4, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    names = list("febd")
    metric = RSA(brain=BrainRDMs(brain(4), tuple("abcdef")), conditions=names)
    metric.update(patterns, names)
    rows = torch.tensor([5, 4, 1, 3])
    expected = compare_rdms(rdm(patterns), brain(4)[:, rows][:, :, rows])
    torch.testing.assert_close(metric.compute()["rho_per_subject"], expected)


def test_a_dead_layer_gives_nan_with_a_reason() -> None:
    metric = RSA(brain=brain(4))
    metric.update(torch.zeros(6, 9), torch.arange(6))
    with pytest.warns(UserWarning, match="conditions without a correlation distance"):
        result = metric.compute()
    assert bool(result["score"].isnan() & result["rho"].isnan())


@pytest.mark.parametrize("policy", ["pairwise", "listwise"])
def test_half_a_dead_layer(policy: str) -> None:
    patterns = torch.randn(6, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    patterns[4:] = 0
    metric = RSA(brain=brain(4), nan_policy=policy)
    metric.update(patterns, torch.arange(6))
    with pytest.warns(UserWarning, match="NaN in the RDM: 4, 5"):
        result = metric.compute()
    assert int(result["n_pairs"]) == 6
    expected = compare_rdms(rdm(patterns[:4]), brain(4)[:, :4, :4])
    torch.testing.assert_close(result["rho_per_subject"], expected)


def test_holes_in_both_brain_and_network() -> None:
    rdms = brain(4)
    rdms[2, 0, 1] = rdms[2, 1, 0] = torch.nan
    patterns = torch.randn(6, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    metric = RSA(brain=rdms, nan_policy="listwise", missing="nan")
    metric.update(patterns[:5], torch.arange(5))
    model = upper_triangle(rdm(patterns[:5]))[1:]
    subjects = upper_triangle(rdms[:, :5, :5])[:, 1:]
    result = metric.compute()
    torch.testing.assert_close(result["rho_per_subject"], compare_rdms_of(model, subjects))
    assert int(result["n_pairs"]) == 9


def compare_rdms_of(model: Tensor, subjects: Tensor) -> Tensor:
    return torch.stack([spearman(model, subject) for subject in subjects])


# ---------------------------------------------------------------------------- permutations


@pytest.mark.parametrize("comparison", ["spearman", "pearson", "whitened-cosine", "kendall-tau-a"])
def test_shuffled_conditions(comparison: str) -> None:
    options: dict[str, Any] = {"brain": brain(4), "comparison": comparison, "shuffles": 50}
    metric = RSA(**options)
    patterns = torch.randn(6, 9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    metric.update(patterns, torch.arange(6))
    result = metric.compute()
    keys = torch.rand(50, 6, generator=torch.Generator().manual_seed(0)).argsort(1)
    vectors = reference_vectors(brain(4).unsqueeze(1))
    matrix = reference.rdm(patterns.numpy())
    found = [
        reference.score(reference.upper(matrix[p][:, p]), vectors, method=comparison)
        for p in keys.numpy()
    ]
    scores = np.array([f["score"] for f in found])
    larger = sum(f["rho"] >= float(result["rho"]) - 1e-12 for f in found)
    assert float(result["floor"]) == pytest.approx(scores.mean())
    assert float(result["floor_95"]) == pytest.approx(np.quantile(scores, 0.95))
    assert float(result["p_value"]) == pytest.approx((1 + larger) / 51)
    again = RSA(**options)
    again.update(patterns, torch.arange(6))
    assert_same(again.compute(), result, 0.0)


def test_a_true_model_has_a_small_p_value() -> None:
    metric = RSA(brain=brain(4), dissimilarity="cityblock", shuffles=200)
    result = fed_with(metric, SIGNAL)
    assert float(result["p_value"]) < 0.02
    assert 0 < float(result["floor"]) < float(result["floor_95"]) < float(result["score"])


# ---------------------------------------------------------------------------- use


def test_position_and_keyword_are_one_identity() -> None:
    rdms = brain(4)
    assert RSA(rdms).configuration == RSA(brain=rdms).configuration
    assert RSA(rdms).configuration != RSA(rdms + 1).configuration
    named = RSA(rdms, network_output="IT", recipe="none")
    assert named.configuration == RSA(brain=rdms, recipe="none", network_output="IT").configuration
    one = TemporalRSA(rdms)
    assert one.configuration == TemporalRSA(brain=rdms).configuration


def test_in_a_suite_with_an_output_by_name() -> None:
    suite = MetricSuite({"it": RSA(brain(4), network_output="IT")}, prefix="val_")
    outputs = {"IT": torch.randn(6, 9, generator=torch.Generator().manual_seed(3))}
    suite.update(activations=outputs, condition=torch.arange(6))
    scalars = suite.scalars(suite.compute())
    assert "val_it" in scalars
    assert "val_it_rho" in scalars


def test_the_brain_is_prepared_once_and_keeps_its_precision() -> None:
    parent = nn.Sequential(nn.Linear(1, 1))
    metric = RSA(brain(4))
    parent.append(metric)
    before = metric.targets["brain"].prepared
    parent.to(torch.bfloat16)
    after = metric.targets["brain"].prepared
    assert before is not None
    assert after is not None
    assert after.dtype is torch.float64
    assert torch.equal(before, after)


def test_the_brain_moves_with_the_module() -> None:
    metric = RSA(brain(4)).to("meta")
    prepared = metric.targets["brain"].prepared
    assert prepared is not None
    assert prepared.device.type == "meta"


def test_window_in_the_unit_of_times() -> None:
    times = torch.tensor([0.1, 0.2, 0.3])
    timed = BrainRDMs(brain(4, 3), times=times)
    metric = TemporalRSA(timed, window=(0.15, 0.3))
    metric.update(torch.randn(6, 2, 9, generator=torch.Generator().manual_seed(3)), torch.arange(6))
    result = metric.compute()
    assert result["rho"].shape == (2, 2)
    whole = TemporalRSA(brain(4, 3))
    whole.update(torch.randn(6, 2, 9, generator=torch.Generator().manual_seed(3)), torch.arange(6))
    torch.testing.assert_close(result["rho"], whole.compute()["rho"][:, 1:])
    best = result["score"].ravel().argmax()
    assert int(result["peak_step"]) * 2 + int(result["peak_time"]) == int(best)


def test_two_category_rdm_of_1000_conditions() -> None:
    """The sum of tied ranks exceeds 32 bits."""
    from scipy import stats

    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(1000) % 2
    categories = upper_triangle((labels.unsqueeze(0) != labels.unsqueeze(1)).to(torch.float64))
    other = categories * 0.3 + torch.rand(len(categories), generator=generator, dtype=torch.float64)
    expected = stats.spearmanr(categories.numpy(), other.numpy()).statistic
    assert abs(float(spearman(categories, other)) - expected) < 1e-12
    assert abs(float(compare_rdms(categories, other)) - expected) < 1e-12
    metric = RSA(
        torch.stack([square(other), square(other.flip(0))]),
        dissimilarity="sqeuclidean",
        recipe="none",
    )
    metric.update(labels.unsqueeze(1).to(torch.float32), torch.arange(1000))
    result = metric.compute()
    assert abs(float(result["rho_per_subject"][0]) - expected) < 1e-12


def test_entries_of_results_in_the_order_of_the_interface() -> None:
    """What is promised first, what is more after it."""
    patterns = torch.randn(6, 9, generator=torch.Generator().manual_seed(3))
    score = RSA(brain(4), shuffles=5)
    score.update(patterns, torch.arange(6))
    promised = ["score", "score_mean_rdm", "score_algonauts2019", "rho", "rho_per_subject", "r2",
                "ceiling_upper", "ceiling_lower", "ceiling_upper_r2", "ceiling_lower_r2", "n_pairs",
                "floor", "p_value"]  # fmt: skip
    assert list(score.compute())[: len(promised)] == promised
    assert list(score.compute()) == list(score.axes)
    timed = TemporalRSA(brain(4, 3))
    timed.update(patterns.unsqueeze(1), torch.arange(6))
    promised = ["score_peak", "rho", "score", "peak_step", "ceiling_upper", "ceiling_lower",
                "ceiling_upper_r2", "ceiling_lower_r2"]  # fmt: skip
    assert list(timed.compute())[: len(promised)] == promised
    assert list(timed.compute()) == list(timed.axes)


@pytest.mark.parametrize("factor", [2.0**e for e in (-1000, -565, -201, 201, 532, 1020)])
@pytest.mark.parametrize("comparison", list(reference.COMPARISONS))
def test_comparisons_have_no_scale(factor: float, comparison: str) -> None:
    """Not of either side, and not of subjects together."""
    rdms = brain(4)
    model = rdm(torch.randn(6, 9, generator=torch.Generator().manual_seed(3)).double())
    expected = compare_rdms(model, rdms, comparison)
    for a, b in ((model * factor, rdms), (model, rdms * factor), (model * factor, rdms * factor)):
        torch.testing.assert_close(compare_rdms(a, b, comparison), expected, rtol=1e-12, atol=0)
    for pooling in ("mean", "rank"):
        ceiling = noise_ceiling(rdms, comparison, pooling)
        assert_same(noise_ceiling(rdms * factor, comparison, pooling), ceiling, 1e-12)
    metrics = [RSA(rdms, comparison=comparison), RSA(rdms * factor, comparison=comparison)]
    results = []
    for metric, scale in zip(metrics, (1.0, factor), strict=True):
        metric.update(patterns_with(SIGNAL.round(decimals=3)) * min(scale, 2.0**900), range(6))
        results.append(metric.compute())
    assert_same(results[1], results[0], 1e-9)


@pytest.mark.parametrize("comparison", ["spearman", "pearson", "cosine", "whitened-cosine"])
def test_subjects_whose_sum_has_no_float64(comparison: str) -> None:
    """Only their mean exists."""
    rdms = brain(4)
    largest = rdms / rdms.abs().max() * 1.7e308
    assert bool(largest.sum(0).isinf().any())
    for pooling in ("mean", "rank"):
        expected = noise_ceiling(rdms, comparison, pooling)
        assert_same(noise_ceiling(largest, comparison, pooling), expected, 1e-12)
    results = []
    for subjects in (rdms, largest):
        metric = RSA(subjects, comparison=comparison)
        metric.update(patterns_with(SIGNAL.round(decimals=3)), range(6))
        results.append(metric.compute())
    assert_same(results[1], results[0], 1e-9)
