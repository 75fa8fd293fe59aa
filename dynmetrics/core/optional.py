"""Packages that only some functions need: imported there, with an error that names the extra."""

from __future__ import annotations

import importlib
from typing import Any


def optional(module: str, extra: str) -> Any:
    """The module, or an `ImportError` that says what to install.

    Raises:
        ImportError: naming the extra of dynmetrics that brings the package.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs {package}: pip install 'dynmetrics[{extra}]' ({error})"
        ) from error
