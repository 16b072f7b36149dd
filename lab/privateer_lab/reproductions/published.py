"""The regret that paper 1 published, from the summary of its public logs."""

import csv
from collections.abc import Iterator
from typing import Any

from privateer.errors import SpecError
from privateer_lab.reproductions.base import Row

PAPER: str = "published (leaks)"


def published(path: str, experiment: str, **facts: Any) -> Iterator[Row]:
    """Rows of an experiment with these facts, e.g. ``gamma=0.0``; nothing without a path.

    Raises
    ------
    SpecError
        If the file cannot be read as that summary.
    """
    if not path:
        return
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                if line["experiment"] != experiment or line["reward"] != "exponential":
                    continue
                row = _row(line)
                if all(row[name] == value for name, value in facts.items()):
                    yield row
    except (OSError, UnicodeDecodeError, KeyError, ValueError):
        raise SpecError(
            f"{path} is not the summary of paper 1's logs", field="--published", remedy="give it, or leave it out"
        ) from None


def _row(line: dict[str, str]) -> Row:
    numbers = {name: float(line[name]) for name in ("gamma", "kappa")}
    counts = {name: int(line[name]) for name in ("n", "n_aux", "M")}
    return {
        "policy": PAPER,
        "published": True,
        "epsilon": float(line["eps"]),
        "eps_aux": line["eps_aux"],
        **numbers,
        **counts,
        "regret": float(line["regret_mean"]),
        "ci95": float(line["regret_ci95"]),
    }
