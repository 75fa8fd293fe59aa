"""Who may import whom, and how long a file may be; and a proof that these checks can fail."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dynmetrics"
LINES = 300
PARTS = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()}
DOMAINS = PARTS - {"core", "training", "plot"}


@dataclass(frozen=True)
class Allowed:
    """What one layer may import: whenever it is loaded, and inside functions besides."""

    at_import: set[str]
    inside: set[str]


BASE = {"torch", "dynmetrics.core"}
READERS = {"numpy", "scipy", "h5py"}
TABLES = {"numpy", "pandas", "rich", "lightning"}
RULES = {
    "": Allowed(
        BASE | {"dynmetrics"} | {f"dynmetrics.{name}" for name in DOMAINS},
        READERS | {"dynmetrics.training"},
    ),
    "core": Allowed(BASE | {"torchmetrics"}, {"numpy", "scipy"}),
    "training": Allowed(BASE | {"dynmetrics.training"}, TABLES | {"dynmetrics.plot"}),
    "plot": Allowed(BASE | {"dynmetrics.plot"}, {"numpy", "matplotlib"}),
    **{name: Allowed(BASE | {f"dynmetrics.{name}"}, READERS) for name in DOMAINS},
}
METRIC_CLASSES = {"metric", "suite", "StreamingMetric", "MetricSuite"}
"""What of `core` is closed to plots, which see results only."""

EXCEPTIONS = {
    ("core/hdf5_files.py", "h5py"): "files are read by a domain and by the command line alike",
    ("rsa/brain_data.py", "rsatoolbox"): "a conversion to that package's own type",
    ("training/lightning.py", "lightning"): "the callback is a class of Lightning's",
    ("training/stages.py", "lightning"): "a part of the callback",
}


def imports(source: str) -> Iterator[tuple[str, bool]]:
    """The full name of everything imported, and whether loading the file is enough for it."""
    tree = ast.parse(source)
    later = {
        id(node)
        for outer in ast.walk(tree)
        for part in _parts_that_run_later(outer)
        for node in ast.walk(part)
    }
    for node in ast.walk(tree):
        for name in _names(node):
            yield name, id(node) not in later


def _parts_that_run_later(node: ast.AST) -> list[ast.stmt]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return node.body
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return [] if isinstance(node.test, ast.UnaryOp) else node.body
    return []


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        return [f"{module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("optional", "__import__"):
        return [str(arg.value) for arg in node.args[:1] if isinstance(arg, ast.Constant)]
    return []


def violations(place: str, source: str) -> list[str]:
    """What a file at `place`, such as "rsa/rdm.py", does against the rules."""
    folders = Path(place).parts[:-1]
    part = folders[0] if folders else ""
    rules = RULES[part]
    found = {}
    for name, at_import in imports(source):
        top, _, rest = name.partition(".")
        own = rest.partition(".")[0]
        known = f"dynmetrics.{own}" if top == "dynmetrics" and own in PARTS else top
        allowed = rules.at_import if at_import else rules.at_import | rules.inside
        if (place, known) in EXCEPTIONS:
            continue
        if not top:
            found[name] = "a relative import"
        elif top == "importlib" and place != "core/optional.py":
            found[name] = "imports by name go through core.optional"
        elif top not in sys.stdlib_module_names and known not in allowed:
            found[known] = f"imports {name}" + (" when it is loaded" if at_import else "")
        elif part == "plot" and known == "dynmetrics.core" and METRIC_CLASSES & {*name.split(".")}:
            found[name] = f"a plot sees results, not {name}"
    if len(source.splitlines()) > LINES:
        found["length"] = f"more than {LINES} lines"
    if any(word in name for word in ("util", "helper") for name in (*folders, Path(place).stem)):
        found["name"] = "a module is named for its subject"
    return [f"{place}: {problem}" for problem in found.values()]


FILES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("place", FILES)
def test_rules(place: str) -> None:
    assert violations(place, (PACKAGE / place).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(("place", "name"), EXCEPTIONS)
def test_exceptions_are_needed(place: str, name: str) -> None:
    source = (PACKAGE / place).read_text(encoding="utf-8")
    assert name in {imported.partition(".")[0] for imported, _ in imports(source)}


def inside(line: str) -> str:
    """A line of source within a function."""
    return f"def f():\n    {line}"


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("core/a.py", "from dynmetrics.temporal import Accuracy"),
        ("core/a.py", "from dynmetrics import temporal"),
        ("core/a.py", "from dynmetrics import Accuracy"),
        ("core/a.py", inside("import dynmetrics.training")),
        ("core/a.py", inside("import pandas")),
        ("core/a.py", inside("optional('matplotlib', 'plot')")),
        ("core/a.py", "import numpy"),
        ("core/a.py", "import importlib"),
        ("temporal/a.py", "from dynmetrics.control import SuccessRate"),
        ("temporal/a.py", "from dynmetrics import control"),
        ("temporal/a.py", "import dynmetrics"),
        ("temporal/a.py", inside("from dynmetrics.control import SuccessRate")),
        ("temporal/a.py", inside("from dynmetrics.plot import plot_curve")),
        ("temporal/a.py", "if TYPE_CHECKING:\n    from dynmetrics.training import History"),
        ("temporal/a.py", "import numpy as np"),
        ("temporal/a.py", "from scipy import stats"),
        ("temporal/a.py", "try:\n    import h5py\nexcept ImportError:\n    pass"),
        ("temporal/a.py", "class A:\n    import numpy"),
        ("temporal/a.py", "if not TYPE_CHECKING:\n    import numpy"),
        ("temporal/a.py", "if TYPE_CHECKING:\n    import numpy\nelse:\n    import scipy"),
        ("temporal/a.py", "from torchmetrics import Metric"),
        ("temporal/a.py", "from .inputs import check"),
        ("temporal/a.py", "from ..control import SuccessRate"),
        ("control/a.py", "from . import success"),
        ("control/a.py", inside("import torch_world")),
        ("control/a.py", inside("from sklearn import metrics")),
        ("rsa/a.py", inside("import rsatoolbox")),
        ("plot/a.py", "from dynmetrics.temporal import Accuracy"),
        ("plot/a.py", inside("from dynmetrics.training import History")),
        ("plot/a.py", "from dynmetrics.core import StreamingMetric"),
        ("plot/a.py", "from dynmetrics.core.suite import MetricSuite"),
        ("plot/a.py", "import matplotlib"),
        ("training/a.py", "from dynmetrics.rsa import RSA"),
        ("training/a.py", inside("from dynmetrics.rsa import RSA")),
        ("training/a.py", "from dynmetrics.plot import plot_curve"),
        ("training/a.py", "import lightning"),
        ("__init__.py", "from dynmetrics.training import History"),
        ("core/utils.py", ""),
        ("core/utils/a.py", ""),
        ("rsa/test_helpers.py", ""),
        ("core/a.py", "\n" * (LINES + 1)),
    ],
)
def test_the_rules_can_fail(place: str, source: str) -> None:
    assert len(violations(place, source)) == 1


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("core/a.py", "import os\nimport torch.nn\nfrom torchmetrics import Metric"),
        ("core/a.py", inside("import numpy")),
        ("temporal/a.py", "from dynmetrics.core import StreamingMetric\n" + inside("import scipy")),
        ("temporal/a.py", "from dynmetrics.temporal.inputs import read"),
        ("temporal/a.py", "if TYPE_CHECKING:\n    import numpy"),
        ("temporal/a.py", inside("optional('h5py', 'files')")),
        ("training/lightning.py", "import lightning"),
        ("training/a.py", "from dynmetrics.core.suite import MetricSuite"),
        ("training/a.py", inside("from dynmetrics.plot import plot_curve")),
        ("plot/a.py", "from dynmetrics.core.checks import refuse\n" + inside("import matplotlib")),
        ("__main__.py", "import dynmetrics\nfrom dynmetrics.temporal import Accuracy"),
        ("__init__.py", inside("from dynmetrics.training import History")),
        ("core/a.py", "\n" * LINES),
    ],
)
def test_the_rules_allow_what_they_should(place: str, source: str) -> None:
    assert violations(place, source) == []
