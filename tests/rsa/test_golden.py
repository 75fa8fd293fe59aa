"""Every golden case of RSA, through functions and classes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dynmetrics.rsa import (
    RDM,
    RSA,
    LayerRSA,
    TemporalRDM,
    TemporalRSA,
    algonauts_score,
    average_ranks,
    compare_rdms,
    noise_ceiling,
    rdm,
    spearman,
)
from dynmetrics.rsa.vectors import square, upper_triangle
from tests.golden_cases import Case
from tests.reference import rsa as reference
from tests.rsa.cases import patterns_with, rsa_case, streamed, tensor

# The names of the golden files, and ours.
DISTANCES = {
    "correlation": "correlation",
    "cosine": "cosine",
    "euclidean": "euclidean",
    "sqeuclidean": "sqeuclidean",
    "squared_euclidean_per_feature": "sqeuclidean-per-feature",
    "cityblock": "cityblock",
}
COMPARISONS = {
    "spearman": "spearman",
    "rho-a": "rho-a",
    "corr": "pearson",
    "tau-a": "kendall-tau-a",
    "kendall": "kendall-tau-b",
    "cosine": "cosine",
    "cosine_cov": "whitened-cosine",
    "corr_cov": "whitened-pearson",
}


def check_metric(case: Case, patterns: Tensor, method: str, expected: Any, seeds: int = 3) -> None:
    """A function, and the class along several routes."""
    case.check(upper_triangle(rdm(patterns, method)), expected)
    for seed in range(seeds):
        metric = streamed(RDM(conditions=len(patterns), dissimilarity=method), patterns, seed)
        case.check(upper_triangle(metric.compute()), expected)


@pytest.mark.parametrize("name", ["s01", "s02"])
@pytest.mark.parametrize("key", DISTANCES)
def test_dissimilarities(name: str, key: str) -> None:
    case = rsa_case(name)
    check_metric(case, tensor(case.inputs["patterns"]), DISTANCES[key], case.expected[key])
    expected = upper_triangle(tensor(reference.rdm(case.inputs["patterns"], DISTANCES[key])))
    case.check(expected, case.expected[key])


@pytest.mark.parametrize("key", ["correlation", "squared_euclidean_per_feature"])
@pytest.mark.parametrize("order", ["condition_order", "first_appearance_order"])
def test_repeats_in_any_order(key: str, order: str) -> None:
    case = rsa_case("s03")
    patterns, condition = tensor(case.inputs["patterns"]), case.inputs["condition"]
    expected = case.expected[key]
    ids = case.expected[order]
    if order == "first_appearance_order":
        rows = [case.expected["condition_order"].index(name) for name in ids]
        expected = upper_triangle(square(tensor(expected))[rows][:, rows])
    shards = [RDM(conditions=ids, dissimilarity=DISTANCES[key]) for _ in range(2)]
    for i, rows in enumerate(case.inputs["presentation_batches"]):
        shards[i % 2].update(patterns[rows], [condition[r] for r in rows])
    shards[0].merge_state(shards[1])
    case.check(upper_triangle(shards[0].compute()), expected)


def test_a_condition_that_is_never_shown() -> None:
    case = rsa_case("s03")
    ids = case.expected["with_missing_condition"]["condition_order"]
    options: dict[str, Any] = {"conditions": ids}
    metric = RDM(**options, missing="nan")
    strict = RDM(**options)
    for m in (metric, strict):
        m.update(tensor(case.inputs["patterns"]), case.inputs["condition"])
    case.check(
        upper_triangle(metric.compute()), case.expected["with_missing_condition"]["correlation"]
    )
    with pytest.raises(ValueError, match=r"condition: expected every condition.*'aardvark'"):
        strict.compute()


@pytest.mark.parametrize("known_folds", [None, 4])
def test_crossnobis(known_folds: int | None) -> None:
    case = rsa_case("s04")
    inputs, extra = case.inputs, case.inputs["extra_presentations"]
    ids = case.expected["condition_order"]
    options: dict[str, Any] = {"conditions": ids, "dissimilarity": "crossnobis"}
    metrics = {
        "crossnobis_identity": RDM(**options, folds=known_folds),
        "crossnobis_precision": RDM(
            **options, folds=known_folds, precision=tensor(inputs["precision"])
        ),
    }
    for key, metric in metrics.items():
        for rows in torch.split(torch.randperm(20, generator=torch.Generator().manual_seed(1)), 6):
            chosen = [inputs["condition"][r] for r in rows.tolist()]
            folds = torch.tensor(inputs["fold"])[rows]
            metric.update(tensor(inputs["patterns"])[rows], chosen, fold=folds)
        case.check(upper_triangle(metric.compute()), case.expected[key])
    assert bool((metrics["crossnobis_identity"].compute() < 0).any())
    metric = metrics["crossnobis_identity"]
    metric.update(tensor(extra["patterns"]), extra["condition"], fold=extra["fold"])
    case.check(upper_triangle(metric.compute()), case.expected["crossnobis_identity_with_extra"])

    folded = torch.zeros(4, 5, 9, dtype=torch.float64)
    for pattern, name, fold in zip(
        inputs["patterns"], inputs["condition"], inputs["fold"], strict=True
    ):
        folded[fold, ids.index(name)] = tensor(pattern)
    case.check(upper_triangle(rdm(folded, "crossnobis")), case.expected["crossnobis_identity"])
    weighted = rdm(folded, "crossnobis", precision=tensor(inputs["precision"]))
    case.check(upper_triangle(weighted), case.expected["crossnobis_precision"])
    check_metric(
        case,
        folded.mean(0),
        "sqeuclidean-per-feature",
        case.expected["squared_euclidean_per_feature_not_crossvalidated"],
    )


@pytest.mark.parametrize("key", COMPARISONS)
def test_comparisons(key: str) -> None:
    case = rsa_case("s05")
    models, data = tensor(case.inputs["model_rdms"]), tensor(case.inputs["data_rdms"])
    expected = case.expected[key]
    case.check(compare_rdms(models, data, COMPARISONS[key]), expected)
    case.check(compare_rdms(square(models), square(data), COMPARISONS[key]), expected)
    if "cosine" in key:
        return  # a cosine is not kept by what is added to make patterns
    for model, row in zip(case.inputs["model_rdms"], expected, strict=True):
        if "cov" in key:
            break
        metric = RSA(brain=square(data), dissimilarity="cityblock", comparison=COMPARISONS[key])
        result = streamed(metric, patterns_with(model)).compute()
        case.check(result["rho_per_subject"], row)


def test_ties_and_signs() -> None:
    case = rsa_case("s06")
    pairs = {name: (tensor(p["a"]), tensor(p["b"])) for name, p in case.inputs["pairs"].items()}
    labels = torch.tensor(case.inputs["labels"])
    categories = upper_triangle((labels.unsqueeze(0) != labels.unsqueeze(1)).to(torch.float64))
    brain = tensor(case.inputs["brain_rdm"])
    pairs["categorical_vs_brain"] = categories, brain
    pairs["categorical_vs_negated_brain"] = categories, -brain
    # A constant is NaN in SciPy and here; rsatoolbox says 0.
    keys = {
        "scipy_spearman": "spearman",
        "scipy_pearson": "pearson",
        "scipy_tau_b": "kendall-tau-b",
    }
    keys |= {f"rsatoolbox_{k}": COMPARISONS[k] for k in ("rho-a", "tau-a", "cosine")}
    for name, (a, b) in pairs.items():
        expected = case.expected[name]
        case.check(average_ranks(a), expected["ranks_a"])
        case.check(average_ranks(b), expected["ranks_b"])
        case.check(spearman(a, b), expected["scipy_spearman"])
        for key, method in keys.items():
            constant = name == "all_tied_a" and method != "cosine"
            value = torch.nan if constant else expected[key]
            case.check(compare_rdms(a, b, method), value)
            case.check(reference.compare(a.numpy(), b.numpy(), method), value)


@pytest.mark.parametrize("key", [k for k in COMPARISONS if k != "kendall"])
def test_ceilings_pooled_on_the_scale_of_the_comparison(key: str) -> None:
    case = rsa_case("s07")
    vectors = tensor(case.inputs["subject_rdms"])
    found = noise_ceiling(vectors, COMPARISONS[key], pooling="rank")
    expected = case.expected[f"rsatoolbox_{key}"]
    case.check(found["upper"], expected["upper"])
    case.check(found["lower"], expected["lower"])


@pytest.mark.parametrize("method", ["spearman", "pearson"])
def test_ceilings_of_the_plain_mean(method: str) -> None:
    case = rsa_case("s07")
    vectors = tensor(case.inputs["subject_rdms"])
    expected = case.expected[f"raw_mean_{method}"]
    for squared, unit in ((False, "r"), (True, "r2")):
        found = noise_ceiling(square(vectors), method, squared=squared)
        for side in ("upper", "lower"):
            case.check(found[side], expected[f"{side}_mean_{unit}"])
    upper, lower = reference.ceiling(vectors.numpy(), method)
    case.check(upper, expected["upper_r_per_subject"])
    case.check(lower, expected["lower_r_per_subject"])
    model = patterns_with(case.inputs["subject_rdms"][0])
    metric = RSA(brain=square(vectors), dissimilarity="cityblock", comparison=method)
    result = streamed(metric, model).compute()
    case.check(result["ceiling_upper"], expected["upper_mean_r"])
    case.check(result["ceiling_lower_r2"], expected["lower_mean_r2"])


def integer_rdm(patterns: Any) -> Tensor:
    patterns = torch.tensor(patterns)
    differences = patterns.unsqueeze(-3) - patterns.unsqueeze(-2)
    distances: Tensor = differences.square().sum(-1).to(torch.float64)
    return distances


def check_scores(case: Case, result: dict[str, Tensor], expected: dict[str, Any]) -> None:
    """A result of RSA against a case of the family of s08, s13 and s14."""
    case.check(result["score_algonauts2019"], expected["score_devkit_percent"])
    case.check(result["score_mean_rdm"], expected["score_seed_literal_percent"])
    if "mean_rho" not in expected:
        return
    case.check(result["rho"], expected["mean_rho"])
    case.check(result["rho_per_subject"], expected["rho_per_subject"])
    case.check(result["rho_mean_rdm"], expected["rho_model_vs_mean_rdm"])
    case.check(result["r2"], expected["mean_rho2"])
    for side in ("upper", "lower"):
        case.check(result[f"ceiling_{side}"], expected["ceiling"][f"{side}_mean_r"])
        case.check(result[f"ceiling_{side}_r2"], expected["ceiling"][f"{side}_mean_r2"])


def test_score_of_78_conditions_and_15_subjects() -> None:
    case = rsa_case("s08")
    subjects = integer_rdm(case.inputs["subject_patterns"])
    model = integer_rdm(case.inputs["model_patterns"])
    assert upper_triangle(model)[:5].tolist() == case.expected["first_rdm_entries"]["model"]
    models = {
        "": model,
        "model_equals_mean_rdm": subjects.sum(0),
        "model_equals_subject_0": subjects[0],
    }
    for name, matrix in models.items():
        expected = case.expected[name] if name else case.expected
        by_devkit = algonauts_score(matrix, subjects, recipe="algonauts2019")
        case.check(by_devkit, expected["score_devkit_percent"])
        case.check(algonauts_score(matrix, subjects), expected["score_seed_literal_percent"])
        for recipe in ("mean-rdm", "algonauts2019"):
            metric = RSA(brain=subjects, dissimilarity="cityblock", recipe=recipe)
            result = streamed(metric, patterns_with(upper_triangle(matrix), 0), repeats=1).compute()
            check_scores(case, result, expected)
            key = "score_mean_rdm" if recipe == "mean-rdm" else "score_algonauts2019"
            case.check(result["score"], result[key])
    ranked = noise_ceiling(subjects, pooling="rank")
    for side in ("upper", "lower"):
        case.check(ranked[side], case.expected["rsatoolbox_rank_pooled_ceiling_r"][side])


@pytest.mark.parametrize("name", ["s13", "s14"])
def test_small_scores(name: str) -> None:
    case = rsa_case(name)
    model, subjects = case.inputs["model_rdm"], tensor(case.inputs["subject_rdms"])
    for seed in range(2):
        metric = RSA(brain=square(subjects), dissimilarity="cityblock")
        result = streamed(metric, patterns_with(model), seed).compute()
        check_scores(case, result, case.expected)
    table = LayerRSA(
        layers=["out"],
        targets={"a": square(subjects), "b": square(subjects)},
        dissimilarity="cityblock",
        recipe="algonauts2019",
    )
    patterns = patterns_with(model)
    table.update({"out": patterns}, torch.arange(len(patterns)))
    found = table.compute()
    case.check(found["score"], [[case.expected["score_devkit_percent"]] * 2])
    case.check(found["track_score"], case.expected["score_devkit_percent"])
    value = algonauts_score(tensor(model), subjects, recipe="algonauts2019")
    case.check(value, case.expected["score_devkit_percent"])
    case.check(
        algonauts_score(tensor(model), subjects), case.expected["score_seed_literal_percent"]
    )
    # The opposite of a brain scores like a brain: only the sign of rho tells.
    assert (result["rho"] < 0) == (name == "s14")


@pytest.mark.parametrize("policy", ["pairwise", "listwise", "propagate"])
def test_nan_in_subjects(policy: str) -> None:
    case = rsa_case("s09")
    subjects, expected = tensor(case.inputs["subject_rdms"]), case.expected[policy]
    model = tensor(case.inputs["model_rdm"])
    metric = RSA(brain=square(subjects), dissimilarity="cityblock", nan_policy=policy)
    streamed(metric, patterns_with(model))
    if policy == "propagate":
        with pytest.warns(UserWarning, match="noise ceiling is NaN"):
            result = metric.compute()
    else:
        result = metric.compute()
    case.check(result["rho_per_subject"], expected["rho_per_subject"])
    if policy != "listwise":
        found = compare_rdms(model, subjects, nan_policy=policy)
        case.check(found, expected["rho_per_subject"])
    if policy == "propagate":
        assert bool(result["score"].isnan())
        return
    score = algonauts_score(model, subjects, "algonauts2019", nan_policy=policy)
    for value in (score, result["score_algonauts2019"]):
        case.check(value, expected.get("score_devkit_percent"))
    case.check(result["ceiling_upper_r2"], expected["upper_mean_r2"])
    ceiling = noise_ceiling(subjects, squared=True, nan_policy=policy)
    case.check(ceiling["upper"], expected["upper_mean_r2"])
    if policy == "listwise":
        assert result["n_pairs"] == expected["n_pairs_used"]
    else:
        case.check(result["r2"], expected["mean_rho2"])
        upper, lower = reference.ceiling(subjects.numpy(), drop_nan=True)
        case.check(upper, expected["upper_r_per_subject"])
        case.check(lower, expected["lower_r_per_subject"])
        case.check(result["ceiling_lower"], np.mean(expected["lower_r_per_subject"]))


def test_nan_in_subjects_is_an_error_by_default() -> None:
    subjects = square(tensor(rsa_case("s09").inputs["subject_rdms"]))
    calls: list[Callable[[], Any]] = [lambda: RSA(brain=subjects)]
    calls += [lambda: noise_ceiling(subjects)]
    calls += [lambda: compare_rdms(subjects[0], subjects)]
    calls += [lambda: algonauts_score(subjects[0], subjects)]
    for call in calls:
        with pytest.raises(ValueError, match=r"expected no NaN \(see nan_policy\), got \d+ NaN"):
            call()


@pytest.mark.filterwarnings("ignore:.*conditions without a")
def test_degenerate_patterns() -> None:
    case = rsa_case("s10")
    constant = tensor(case.inputs["patterns_constant_row"])
    for key, method in DISTANCES.items():
        if f"constant_row_{key}" in case.expected:
            check_metric(case, constant, method, case.expected[f"constant_row_{key}"])
    single = tensor(case.inputs["patterns_single_feature"])
    for key in ("correlation", "squared_euclidean_per_feature"):
        check_metric(case, single, DISTANCES[key], case.expected[f"single_feature_{key}"])
    for name in ("two_conditions", "three_conditions", "affine_copy"):
        expected = case.expected[f"{name}_correlation"]
        check_metric(case, tensor(case.inputs[name]), "correlation", expected)
    odd = tensor(case.inputs["patterns_constant_row_not_representable"])
    expected = case.expected["constant_row_not_representable"]["policy_correlation"]
    check_metric(case, odd, "correlation", expected)
    check_metric(case, odd.to(torch.float32).to(torch.float64), "correlation", [torch.nan,
        float(rdm(odd.float()[[0, 2]])[0, 1]), torch.nan])  # fmt: skip
    assert bool(spearman(tensor([0.3]), tensor([0.1])).isnan())
    for row in case.expected["three_pairs_spearman"]:
        case.check(spearman(tensor(row["a"]), tensor(row["b"])), row["rho"])


def test_model_time_by_brain_time() -> None:
    case = rsa_case("s11")
    brain = square(tensor(case.inputs["brain_rdms_subject_time"]))
    expected = case.expected
    models = case.inputs["model_rdms_time"]
    patterns = torch.stack([patterns_with(model) for model in models], 1)
    widths = [streamed(TemporalRDM(conditions=8, dissimilarity="cityblock"), patterns)]
    for t, model in enumerate(models):
        ranks = average_ranks(upper_triangle(widths[0].compute()[t]))
        case.check(ranks, reference.ranks(model))
    metric = streamed(TemporalRSA(brain=brain, dissimilarity="cityblock"), patterns)
    with pytest.warns(UserWarning, match="without any common signal"):
        result = metric.compute()
    case.check(result["rho"], expected["mean_over_subjects_modeltime_braintime"])
    for side in ("upper", "lower"):
        for name, unit in (("", "r"), ("_r2", "r2")):
            if f"ceiling_{side}_mean_{unit}_per_braintime" in expected:
                key = f"ceiling_{side}_mean_{unit}_per_braintime"
                case.check(result[f"ceiling_{side}{name}"], expected[key])
    best = result["rho"].argmax(1)
    assert best.tolist() == expected["best_braintime_per_modeltime"]
    # The MEG track: averaged over the window within each subject, then squared.
    for t, model in enumerate(models):
        meg = streamed(RSA(brain=brain, dissimilarity="cityblock"), patterns_with(model)).compute()
        by_subject = np.array(expected["meg_devkit"]["rho_time_averaged_subject_modeltime"])[:, t]
        case.check(meg["rho_per_subject"], by_subject)
        case.check(meg["r2"], expected["meg_devkit"]["mean_rho2_per_modeltime"][t])
        wrong = expected["wrong_order_mean_of_squares_per_modeltime"][t]
        assert abs(float(meg["r2"]) - wrong) > 1e-3
        ratio = float(meg["r2"] / meg["ceiling_upper_r2"])
        case.check(result["score_window"][t], 100 * ratio)
    rows = [
        compare_rdms(tensor(models), upper_triangle(brain[s])).tolist() for s in range(len(brain))
    ]
    case.check(rows, expected["rho_subject_modeltime_braintime"])
    averaged = noise_ceiling(brain.mean(1))
    for side in ("upper", "lower"):
        bound = expected["ceiling_of_time_averaged_rdm"][f"{side}_mean_r"]
        case.check(averaged[side], bound)


def test_linear_cka() -> None:
    case = rsa_case("s12")
    ours = [rdm(tensor(case.inputs[name]), "sqeuclidean") for name in ("x", "y")]
    case.check(
        compare_rdms(ours[0], ours[1], "whitened-cosine"), case.expected["linear_cka_biased"]
    )
    case.check(compare_rdms(ours[0], ours[1], "whitened-pearson"), case.expected["whitened_corr"])
    for key, method in (("linear_cka_biased", "cosine"), ("whitened_corr", "pearson")):
        metric = RSA(
            brain=ours[1],
            dissimilarity="sqeuclidean",
            comparison=f"whitened-{method}",
            recipe="none",
        )
        streamed(metric, tensor(case.inputs["x"]))
        case.check(metric.compute()["rho"], case.expected[key])


def real_data() -> dict[str, np.ndarray]:
    folder = os.environ.get("DYNMETRICS_DATA")
    if not folder or not (Path(folder) / "kriegeskorte92.npz").exists():
        pytest.skip("needs kriegeskorte92.npz in the folder that DYNMETRICS_DATA names")
    with np.load(Path(folder) / "kriegeskorte92.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def test_human_and_monkey_it() -> None:
    case, data = rsa_case("real"), real_data()
    subjects = torch.from_numpy(data["human_it_rdms"]).to(torch.float64).mean(1)
    bounds = case.expected["ceilings"]
    plain, squares = noise_ceiling(subjects), noise_ceiling(subjects, squared=True)
    for side in ("upper", "lower"):
        case.check(plain[side], bounds[f"{side}_rho"])
        case.check(squares[side], bounds[f"{side}_rho2"])
    monkey = torch.from_numpy(data["monkey_it_rdm"]).to(torch.float64)
    human = torch.from_numpy(data["human_it_mean_rdm"]).to(torch.float64)
    published = case.expected["monkey_vs_human_published"]
    case.check(compare_rdms(monkey, human), published["spearman"])
    pearson = compare_rdms(monkey, human, "pearson")
    case.check(pearson, published["pearson"])
    assert round(float(pearson), 2) == published["pearson_rounded"]
    names = [str(name) for name in data["model_names"]]
    for model in case.expected["models"]:
        matrix = torch.from_numpy(data["model_rdms"][names.index(model["model"])])
        case.check(compare_rdms(matrix, subjects.mean(0)), model["rho_mean_rdm"])
        case.check(compare_rdms(matrix, subjects.mean(0), "pearson"), model["pearson_mean_rdm"])
        case.check(compare_rdms(matrix, subjects), model["rho_per_subject"])
        by_devkit = algonauts_score(matrix, subjects, "algonauts2019")
        case.check(by_devkit, model["algonauts2019_percent"])
        case.check(algonauts_score(matrix, subjects), model["seed_literal_percent"])
