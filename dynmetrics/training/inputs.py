"""From what a step returns to the inputs of a suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dynmetrics.core.checks import describe, refuse
from dynmetrics.core.suite import MetricSuite

InputMap = Mapping[str, str] | Callable[[Any, Any], Mapping[str, Any]]
"""From a suite's input to the name under which it is found; or `f(outputs, batch) -> inputs`."""


def suite_inputs(
    suite: MetricSuite, outputs: Any, batch: Any, names: InputMap | None
) -> dict[str, Any]:
    """What `suite.update` takes: looked up in the outputs of a step, then in the batch.

    Raises:
        ValueError: if an input that a metric needs is in neither; the message lists what is there.
    """
    if callable(names):
        return dict(names(outputs, batch))
    known = names or {}
    for name in known:
        if name not in suite.inputs:
            raise refuse("inputs", f"names among {list(suite.inputs)}", describe(name))
    sources = [source for source in (outputs, batch) if isinstance(source, Mapping)]
    found: dict[str, Any] = {}
    for name, required in suite.inputs.items():
        wanted = known.get(name, name)
        holders = [source for source in sources if wanted in source]
        if holders:
            found[name] = holders[0][wanted]
        elif required or name in known:
            raise refuse(
                "inputs",
                f"{wanted!r} (the suite's {name!r}) in what the step returns or in the batch",
                f"{describe(outputs)} and the batch {describe(batch)}; see the option inputs",
            )
    return found
