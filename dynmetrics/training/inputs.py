"""From what a step returns to the inputs of a suite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dynmetrics.core.checks import describe, refuse
from dynmetrics.core.suite import MetricSuite

InputMap = Mapping[str, str] | Callable[[Any, Any], Mapping[str, Any]]
"""From a suite's input to the name under which it is found; or `f(outputs, batch) -> inputs`."""


def check_inputs(names: Any, suites: Iterable[MetricSuite]) -> None:
    """Refuse what does not say where inputs that one of the suites takes are found."""
    is_map = isinstance(names, Mapping) and all(isinstance(name, str) for name in names.values())
    if names is not None and not callable(names) and not is_map:
        expected = "a mapping from names to names, a function f(outputs, batch), or None"
        raise refuse("inputs", expected, describe(names))
    taken = sorted({name for suite in suites for name in suite.inputs})
    for name in names if isinstance(names, Mapping) else ():
        if name not in taken:
            raise refuse("inputs", f"names among {taken}", describe(name))


class SuiteInputs:
    """Finds what `suite.update` takes: in the outputs of a step, then in the batch."""

    def __init__(self, suite: MetricSuite, names: InputMap | None) -> None:
        self._function = names if callable(names) else None
        known = names if isinstance(names, Mapping) else {}
        # What a suite takes does not change: asking it at every batch would cost more than finding.
        self._wanted = [
            (name, known.get(name, name), needed or name in known)
            for name, needed in suite.inputs.items()
        ]

    def find(self, outputs: Any, batch: Any) -> dict[str, Any]:
        """The inputs of one batch.

        Raises:
            ValueError: if one that a metric needs is in neither; the message lists what is there.
        """
        if self._function is not None:
            given: Any = self._function(outputs, batch)
            if not isinstance(given, Mapping):
                expected = "a function that returns a mapping from the suite's inputs"
                raise refuse("inputs", expected, describe(given))
            return dict(given)
        found: dict[str, Any] = {}
        for name, wanted, needed in self._wanted:
            if isinstance(outputs, Mapping) and wanted in outputs:
                found[name] = outputs[wanted]
            elif isinstance(batch, Mapping) and wanted in batch:
                found[name] = batch[wanted]
            elif needed:
                raise refuse(
                    "inputs",
                    f"{wanted!r} (the suite's {name!r}) in what the step returns or in the batch",
                    f"{describe(outputs)} and the batch {describe(batch)}; see the option inputs",
                )
        return found
