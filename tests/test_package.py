"""What a user imports: nothing optional is loaded, and the public names are what is exported."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import dynmetrics
from dynmetrics.core import StreamingMetric

ROOT = Path(__file__).parents[1]
PACKAGES = ["dynmetrics"] + [
    f"dynmetrics.{module.name}"
    for module in pkgutil.iter_modules(dynmetrics.__path__)
    if module.ispkg
]
OPTIONAL = (
    "lightning|pytorch_lightning|h5py|pandas|sklearn|skimage|rsatoolbox|torch_world|wandb|rich"
)
OF_TORCHMETRICS = "matplotlib|scipy"
"""What torchmetrics itself loads where it is installed."""


def _loaded(modules: list[str]) -> set[str]:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_import_loads_nothing_optional() -> None:
    ours, base = _loaded(PACKAGES), _loaded(["torchmetrics"])
    assert "dynmetrics" in ours
    assert {name for name in ours if re.fullmatch(OPTIONAL, name)} == set()
    assert {name for name in ours - base if re.fullmatch(OF_TORCHMETRICS, name)} == set()


def test_what_is_loaded_is_seen() -> None:
    assert _loaded(["rich.table", "h5py"]) >= {"rich", "h5py"}


@pytest.mark.parametrize("name", PACKAGES)
def test_exports_are_the_public_names(name: str) -> None:
    package = importlib.import_module(name)
    exported = package.__all__
    assert sorted(set(exported)) == sorted(exported)
    public = {n for n, v in vars(package).items() if not n.startswith("_") and _is_own(v, n, name)}
    lazy = {"MetricsCallback"} if name == "dynmetrics.training" else set()
    assert public | lazy == set(exported) - {"__version__"}
    for entry in exported:
        value = getattr(package, entry)
        if callable(value):
            assert inspect.getdoc(value), f"{name}.{entry} has no docstring"


def _is_own(value: object, name: str, package: str) -> bool:
    """Whether a name in a package is meant for users: not a submodule, not an import of ours."""
    if isinstance(value, ModuleType) or name in ("TYPE_CHECKING", "Any"):
        return False
    module = getattr(value, "__module__", package)
    return str(module).startswith("dynmetrics") or not callable(value)


def test_every_metric_is_exported_at_the_top() -> None:
    for name in PACKAGES[1:]:
        package = importlib.import_module(name)
        for entry in package.__all__:
            value = getattr(package, entry)
            if inspect.isclass(value) and issubclass(value, StreamingMetric):
                assert getattr(dynmetrics, entry, None) is value, f"dynmetrics.{entry}"


def test_version_is_one() -> None:
    assert version("dynmetrics") == dynmetrics.__version__
    headings = re.findall(r"^## \[(\d.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == dynmetrics.__version__
    assert (ROOT / "dynmetrics" / "py.typed").exists()
