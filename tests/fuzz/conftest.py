"""Says after a large campaign how many cases every metric stood."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fuzz.families import CASES


@pytest.fixture(autouse=True)
def _counted(request: pytest.FixtureRequest) -> Iterator[None]:
    CASES.clear()
    yield
    # Properties of a test reach the process that reports, whoever ran it.
    request.node.user_properties.append(("cases", dict(CASES)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if "DYNMETRICS_FUZZ" not in os.environ:
        return
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") != "teardown":
                continue
            for name, value in getattr(report, "user_properties", ()):
                total.update(value if name == "cases" else {})
    terminalreporter.section("cases")
    for name, count in sorted(total.items()):
        terminalreporter.write_line(f"{count:8}  {name}")
    terminalreporter.write_line(f"{sum(total.values()):8}  all")
