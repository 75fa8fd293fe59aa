"""Who may import whom, and how long a file may be; and a proof that these checks can fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "dynmetrics"
LINES = 300
LAYERS = {"core", "training", "plot"}
DOMAINS = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()} - LAYERS
REFERENCE_TOOLS = {"torch_world", "sklearn", "torcheval", "faiss", "pytorch_msssim"}
STANDARD = {"numpy", "scipy", "matplotlib", "rich", "h5py", "pandas", "lightning"}


def imports(source: str) -> Iterator[tuple[str, bool]]:
    """Every imported module, and whether it is imported when the file is (not in a function)."""
    tree = ast.parse(source)
    inner = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)) or _is_type_checking(outer)
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "."]
        else:
            continue
        for name in names:
            yield name, id(node) not in inner


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def violations(place: str, source: str) -> list[str]:
    """What a file at `place`, such as "rsa/rdm.py", does against the rules."""
    part = Path(place).parts[0] if len(Path(place).parts) > 1 else ""
    found = []
    for name, at_import in imports(source):
        top, _, rest = name.partition(".")
        own = rest.partition(".")[0] if top == "dynmetrics" else ""
        if top in REFERENCE_TOOLS:
            found.append(f"{place}: {name} is for tests only")
        if top in STANDARD and at_import and not (part == "training" and top == "lightning"):
            found.append(f"{place}: {name} belongs into the function that needs it")
        if top == "." or name.startswith("."):
            found.append(f"{place}: relative import")
        if part == "core" and own not in ("", "core"):
            found.append(f"{place}: core imports {name}")
        if part in DOMAINS and own in (DOMAINS | {"training", "plot"}) - {part}:
            found.append(f"{place}: a domain imports {name}")
        if part == "plot" and own in DOMAINS | {"training"}:
            found.append(f"{place}: plot imports {name}")
        if part == "training" and own in DOMAINS:
            found.append(f"{place}: training imports {name}")
        if part == "training" and own == "plot" and at_import:
            found.append(f"{place}: plot belongs into the function that needs it")
    if source.count("\n") > LINES:
        found.append(f"{place}: more than {LINES} lines")
    if "util" in Path(place).stem or "helper" in Path(place).stem:
        found.append(f"{place}: a module needs a subject")
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.name))
def test_rules(path: Path) -> None:
    assert violations(str(path.relative_to(PACKAGE)), path.read_text()) == []


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("core/a.py", "from dynmetrics.temporal import Accuracy"),
        ("core/a.py", "def f():\n    import dynmetrics.training"),
        ("temporal/a.py", "from dynmetrics.control import SuccessRate"),
        ("temporal/a.py", "def f():\n    from dynmetrics.plot import plot_curve"),
        ("temporal/a.py", "import numpy as np"),
        ("temporal/a.py", "from scipy import stats"),
        ("plot/a.py", "from dynmetrics.temporal import Accuracy"),
        ("plot/a.py", "import matplotlib"),
        ("training/a.py", "from dynmetrics.rsa import RSA"),
        ("training/a.py", "from dynmetrics.plot import plot_curve"),
        ("control/a.py", "def f():\n    import torch_world"),
        ("control/a.py", "from . import success"),
        ("core/utils.py", ""),
        ("core/a.py", "\n" * (LINES + 1)),
    ],
)
def test_the_rules_can_fail(place: str, source: str) -> None:
    assert len(violations(place, source)) == 1


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("core/a.py", "import torch\nfrom torchmetrics import Metric"),
        (
            "temporal/a.py",
            "from dynmetrics.core import StreamingMetric\ndef f():\n    import scipy",
        ),
        ("training/a.py", "import lightning\ndef f():\n    from dynmetrics.plot import plot_curve"),
        ("__main__.py", "from dynmetrics.temporal import Accuracy"),
    ],
)
def test_the_rules_allow_what_they_should(place: str, source: str) -> None:
    assert violations(place, source) == []
