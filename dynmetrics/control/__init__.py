"""Control: policies and agents, scored by episodes (N,) or (N, T)."""

from dynmetrics.control.action_smoothness import ActionSmoothness, smoothness
from dynmetrics.control.aggregates import (
    iqm,
    optimality_gap,
    probability_of_improvement,
    stratified_bootstrap,
)
from dynmetrics.control.comparison import PolicyComparison, required_episodes
from dynmetrics.control.goal_progress import GoalProgress, progress
from dynmetrics.control.intervals import newcombe_interval, wilson_interval
from dynmetrics.control.path import SPL, SoftSPL, path_length, spl
from dynmetrics.control.steps import StepsToSuccess, first_success
from dynmetrics.control.success import Rate, SuccessRate, success_rate

__all__ = [
    "SPL",
    "ActionSmoothness",
    "GoalProgress",
    "PolicyComparison",
    "Rate",
    "SoftSPL",
    "StepsToSuccess",
    "SuccessRate",
    "first_success",
    "iqm",
    "newcombe_interval",
    "optimality_gap",
    "path_length",
    "probability_of_improvement",
    "progress",
    "required_episodes",
    "smoothness",
    "spl",
    "stratified_bootstrap",
    "success_rate",
    "wilson_interval",
]
