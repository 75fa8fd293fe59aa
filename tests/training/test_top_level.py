"""What a training run needs is found in `dynmetrics` itself, and loaded only when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dynmetrics
import dynmetrics.training

NAMES = ("ActivationRecorder", "History", "MetricsCallback", "evaluate")


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_same_object(name: str) -> None:
    assert getattr(dynmetrics, name) is getattr(dynmetrics.training, name)
    assert name in dir(dynmetrics)


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Historian'"):
        dynmetrics.Historian  # noqa: B018


CODE = """
import sys
sys.modules["lightning"] = None  # as if it were not installed
import dynmetrics
from dynmetrics import *
from dynmetrics import ActivationRecorder, History, evaluate
from dynmetrics.__main__ import metric_classes
assert "TemporalAccuracy" in metric_classes()
try:
    dynmetrics.MetricsCallback
except ImportError as error:
    print(error)
"""


def test_only_the_callback_needs_lightning() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stderr == ""
    assert "pip install 'dynmetrics[lightning]'" in done.stdout


def test_the_package_alone_loads_neither_training_nor_lightning() -> None:
    code = "import sys, dynmetrics; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"dynmetrics.training", "lightning", "lightning.pytorch"} & {*done.stdout.split()}
