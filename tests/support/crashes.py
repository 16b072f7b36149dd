"""A process that dies at a chosen moment: the next process begins with what is on disk then."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def snapshot_at(
    monkeypatch: pytest.MonkeyPatch, owner: type, method: str, data: Path, copy: Path, *, after: bool
) -> Callable[[], bool]:
    """Have a copy of ``data`` made the next time a method is called, before or after it; tells whether it was."""
    original: Callable[..., Any] = getattr(owner, method)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        if not after and not copy.exists():
            shutil.copytree(data, copy)
        result = original(*arguments, **options)
        if after and not copy.exists():
            shutil.copytree(data, copy)
        return result

    monkeypatch.setattr(owner, method, wrapped)
    return copy.exists
