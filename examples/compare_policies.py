"""Compare two policies in torch_world's PointMass: is one better, and on which tasks?

    python examples/compare_policies.py

Both policies run the same episodes from the same starts, so that the comparison is paired.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from dynmetrics import (
    SPL,
    ActionSmoothness,
    MetricSuite,
    PolicyComparison,
    StepsToSuccess,
    SuccessRate,
)
from dynmetrics.control import first_success
from dynmetrics.core.optional import optional
from dynmetrics.plot import plot_interval, plot_survival

TASKS = {"near": (0.1, 0.2), "middle": (0.2, 0.35), "far": (0.35, 0.5)}  # distance to the goal
STEPS, RADIUS = 12, 0.05


def direct(position: Tensor, goal: Tensor, noise: Tensor) -> Tensor:
    """Full speed towards the goal, until it is close."""
    return ((goal - position) / 0.1).clamp(-1, 1) + 0.3 * noise


def timid(position: Tensor, goal: Tensor, noise: Tensor) -> Tensor:
    """Never faster than half the speed, and shakier."""
    return ((goal - position) / 0.1).clamp(-0.5, 0.5) + 0.5 * noise


POLICIES = {"direct": direct, "timid": timid}


def rollouts(episodes: int, batch: int) -> list[dict[str, Tensor]]:
    """Batches of both policies' episodes: positions (N, T + 1, 2), actions (N, T, 2), and more."""
    envs = optional("torch_world.envs", "dev")
    generator = torch.Generator().manual_seed(0)
    batches = []
    for start in range(0, episodes, batch):
        task = (torch.arange(batch) + start) % len(TASKS)
        bands = torch.tensor(list(TASKS.values()))[task]
        env = envs.PointMass(batch_size=batch)
        env.reset(generator=generator)
        first = env.state.clone()
        goal = _goals(first, bands, generator)
        noise = torch.randn(STEPS, batch, 2, generator=generator)
        episode = {"task": task, "goal": goal}
        for name, policy in POLICIES.items():
            env.reset(state=first)
            positions, actions = [env.state.clone()], []
            for t in range(STEPS):
                actions.append(policy(env.state, goal, noise[t]).clamp(-1, 1))
                env.step(actions[-1])
                positions.append(env.state.clone())
            path = torch.stack(positions, 1)
            episode[f"{name}_positions"] = path
            episode[f"{name}_actions"] = torch.stack(actions, 1)
            episode[f"{name}_reached"] = (path - goal[:, None]).norm(dim=-1) < RADIUS
        batches.append(episode)
    return batches


def _goals(position: Tensor, bands: Tensor, generator: torch.Generator) -> Tensor:
    """Goals at a distance within the band of every episode's task, towards the middle."""
    inward = 0.5 - position
    inward = inward / inward.norm(dim=1, keepdim=True).clamp(min=1e-6)
    share = torch.rand(len(position), 1, generator=generator)
    goals: Tensor = position + inward * (bands[:, :1] + share * (bands[:, 1:] - bands[:, :1]))
    return goals.clamp(0, 1)


def make_suite() -> MetricSuite:
    return MetricSuite({
        "success": SuccessRate(mode="any", num_tasks=len(TASKS)),
        "steps": StepsToSuccess(max_steps=STEPS, num_tasks=len(TASKS)),
        "path": SPL(num_tasks=len(TASKS), confidence=0.95),
        "jitter": ActionSmoothness(num_tasks=len(TASKS)),
    })  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path("runs") / "policies")
    options = parser.parse_args()
    suites = {name: make_suite() for name in POLICIES}
    comparison = PolicyComparison(margin=0.1)
    progress = optional("rich.progress", "table")
    for batch in progress.track(rollouts(options.episodes, options.batch), "episodes"):
        ever = {name: batch[f"{name}_reached"].any(1) for name in POLICIES}
        for name, suite in suites.items():
            suite["success"].update(batch[f"{name}_reached"], task=batch["task"])
            suite["steps"].update(batch[f"{name}_reached"], task=batch["task"])
            first = first_success(batch[f"{name}_reached"])
            suite["path"].update(
                ever[name], batch[f"{name}_positions"], batch["goal"], task=batch["task"],
                lengths=torch.where(first >= 0, first, STEPS) + 1,  # what comes later is no detour
            )  # fmt: skip
            suite["jitter"].update(batch[f"{name}_actions"], task=batch["task"])
        comparison.update(ever["direct"], ever["timid"])

    results = {name: suite.compute() for name, suite in suites.items()}
    show_table(results)
    outcome = comparison.compute()
    print(
        f"difference {float(outcome['difference']):+.2f} "
        f"[{float(outcome['low']):+.2f}, {float(outcome['high']):+.2f}], "
        f"p = {float(outcome['p_value']):.2g}: direct is a, {comparison.verdict(outcome)}"
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        entries = {key.removeprefix("success_"): value for key, value in result.items()
                   if key.startswith("success_")}  # fmt: skip
        entries["rate"] = result["success"]
        figure = plot_interval(entries, labels=list(TASKS), title=f"success of {name}")
        figure.savefig(options.folder / f"success_{name}.png")
        survival = plot_survival({"survival": result["steps_survival"]}, title=name)
        survival.savefig(options.folder / f"survival_{name}.png")


def show_table(results: dict[str, dict[str, Tensor]]) -> None:
    """A row for each task and policy."""
    table = optional("rich.table", "table").Table(title="per task")
    for column in ("task", "policy", "episodes", "success", "steps", "SPL", "jitter"):
        table.add_column(column, justify="left" if column in ("task", "policy") else "right")
    for i, task in enumerate(TASKS):
        for name, result in results.items():
            rate, low, high = (
                float(result[f"success_task_{key}"][i]) for key in ("rate", "low", "high")
            )
            table.add_row(
                task, name, str(int(result["success_task_n"][i])),
                f"{rate:.2f} [{low:.2f}, {high:.2f}]", f"{float(result['steps_task_mean'][i]):.1f}",
                f"{float(result['path_task_spl'][i]):.2f}",
                f"{float(result['jitter_task_smoothness'][i]):.2f}",
            )  # fmt: skip
    optional("rich.console", "table").Console(width=96).print(table)


if __name__ == "__main__":
    main()
