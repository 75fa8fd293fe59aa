"""The same start for every test: fixed seeds, one thread, and the real data where there are any."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)

# The same examples in every run, and no time limit that a busy machine breaks.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data, named by the environment variable DYNMETRICS_DATA."""
    name = os.environ.get("DYNMETRICS_DATA")
    if not name:
        pytest.skip("needs real data: set DYNMETRICS_DATA to the folder that holds them")
    folder = Path(name)
    assert folder.is_dir(), f"DYNMETRICS_DATA={name} is no folder"
    return folder
