"""The suites of a run: one for every stage and dataloader, so that none pollutes another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dynmetrics.core.checks import describe, refuse
from dynmetrics.core.suite import MetricSuite
from dynmetrics.training.inputs import InputMap, SuiteInputs, check_inputs

STAGES = ("train", "val", "test")


class StageSuites:
    """Copies of the suites given for the stages, made when they are first needed.

    A key names a stage and a dataloader, such as "val" or "val_loader1".
    """

    def __init__(
        self,
        suite: MetricSuite,
        own: Mapping[str, MetricSuite | bool | None],
        inputs: InputMap | None,
    ) -> None:
        if not isinstance(suite, MetricSuite):
            raise refuse("suite", "a MetricSuite", describe(suite))
        self._templates = {stage: _template(stage, suite, own[stage]) for stage in STAGES}
        self._suites: dict[str, MetricSuite] = {}
        self._inputs: dict[str, SuiteInputs] = {}
        self._devices: dict[str, torch.device] = {}
        self._names = inputs
        given = [template for template in self._templates.values() if template is not None]
        check_inputs(inputs, given)
        self.directions = {k: v for one in given for k, v in one.higher_is_better.items()}
        """Whether higher is better, for the headlines of all stages."""

    def get(self, key: str, device: torch.device) -> MetricSuite | None:
        """The suite of a stage and loader on `device`; None if the stage has none."""
        if self._devices.get(key) == device:
            return self._suites[key]
        template = self._templates[stage_of(key)]
        if template is None:
            return None
        if key not in self._suites:
            self._suites[key] = template.clone(prefix=f"{key}_")
            self._inputs[key] = SuiteInputs(self._suites[key], self._names)
        self._devices[key] = device
        return self._suites[key].to(device)

    def update(self, key: str, device: torch.device, outputs: Any, batch: Any) -> None:
        """Add what a step has returned; None is a batch that the step has skipped."""
        if outputs is None:
            return
        suite = self.get(key, device)
        if suite is not None:
            suite.update(**self._inputs[key].find(outputs, batch))

    def reset(self, stage: str | None = None) -> None:
        """Forget what the suites of a stage have gathered, or those of all."""
        for key, suite in self._suites.items():
            if stage in (None, stage_of(key)):
                suite.reset()

    def gathered(self, key: str) -> dict[str, Tensor]:
        """The results so far, or nothing if there was no batch."""
        suite = self._suites.get(key)
        seen = suite is not None and any(metric.update_count for _, metric in suite.items())
        return suite.compute() if suite is not None and seen else {}

    def axes(self, key: str) -> dict[str, tuple[str, ...]]:
        """The axis letters of the results of a suite in use."""
        return self._suites[key].axes

    def states(self) -> dict[str, dict[str, Any]]:
        """The joint states of all ranks, every one of which has to call this."""
        states = {}
        for key, suite in sorted(self._suites.items()):
            with suite.synchronised():
                states[key] = suite.state_dict()
        return states


def stage_of(key: str) -> str:
    """The stage in a key."""
    return key.partition("_")[0]


def _template(stage: str, suite: MetricSuite, own: MetricSuite | bool | None) -> MetricSuite | None:
    """The suite from which those of a stage are cloned; None for no suite."""
    if own is False:
        return None
    if own is None or own is True:
        own = suite
    if not isinstance(own, MetricSuite):
        raise refuse(stage, "a MetricSuite, a flag or None", describe(own))
    return own.clone(prefix=f"{stage}_")
