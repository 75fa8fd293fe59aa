"""The picture of a run that the callback draws anew after every epoch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from dynmetrics.core.checks import describe, refuse
from dynmetrics.training.history import History


def check_picture(picture: Any) -> Path | None:
    """The path of the picture; what cannot be drawn is refused before training, not after.

    Raises:
        ValueError: for what is no path, and for a kind of file that matplotlib does not write.
        ImportError: without matplotlib, naming the extra "plot".
    """
    if picture is None:
        return None
    if not isinstance(picture, (str, os.PathLike)):
        raise refuse("picture", "a path or None", describe(picture))
    from dynmetrics.plot.style import picture_suffixes

    path = Path(picture)
    if path.suffix.lower() not in picture_suffixes():
        expected = f"a file that ends in one of {', '.join(picture_suffixes())}"
        raise refuse("picture", expected, repr(str(path)))
    return path


def draw_history(history: History, path: Path) -> None:
    """Draw the progress; who looks at the file meanwhile sees the old picture or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.stem}.new{path.suffix}")
    history.plot(new)
    new.replace(path)
