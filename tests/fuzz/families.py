"""Every metric under its laws: the contracts of all tests, found by importing them."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from pathlib import Path

import dynmetrics
from dynmetrics.core import StreamingMetric
from tests.contract import MetricContract

EXAMPLES = int(os.environ.get("DYNMETRICS_FUZZ", "1"))
"""How many times the small campaign: `make fuzz` sets it."""

_TESTS = Path(__file__).parent.parent
_DOMAINS = ("temporal", "rsa", "representation", "prediction", "control", "retrieval")


def contracts() -> list[type[MetricContract]]:
    """One test class for every metric and way of using it."""
    for domain in _DOMAINS:
        for path in sorted((_TESTS / domain).glob("test_*.py")):
            importlib.import_module(f"tests.{domain}.{path.stem}")
    found: list[type[MetricContract]] = []
    waiting = [MetricContract]
    while waiting:
        current = waiting.pop()
        waiting += current.__subclasses__()
        in_domain = current.__module__.split(".")[1] in _DOMAINS
        if in_domain and current.__name__.startswith("Test"):
            found.append(current)
    return sorted(found, key=name_of)


def name_of(contract: type[MetricContract]) -> str:
    """A name for a test's parameter."""
    return f"{contract.__module__.removeprefix('tests.')}.{contract.__name__}"


def public_metrics() -> set[type[StreamingMetric]]:
    """The classes that the package exports."""
    exported = (getattr(dynmetrics, name) for name in dynmetrics.__all__)
    return {
        item
        for item in exported
        if isinstance(item, type)
        and issubclass(item, StreamingMetric)
        and item is not StreamingMetric
    }


CONTRACTS = contracts()
"""Collected once: importing the tests takes seconds."""

CASES: Counter[str] = Counter()
"""How many cases of the test that runs each metric stood."""


def law_of(contract: type[MetricContract]) -> MetricContract:
    """The contract at work, for one case more."""
    law = contract()
    CASES[type(law.make()).__name__] += 1
    return law
