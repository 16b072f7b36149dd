"""Rows of a test under a promise: each is read by itself, none is refused, and some count nowhere."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privateer_lab.tables.data_table import TableRows
from privateer_lab.tables.log_rows import ArmNames, LogRows, first_rows


@dataclass(frozen=True)
class PrivateRows(LogRows):
    """All rows, or all people, of which some count nowhere."""

    # shape (n,): which have a named arm and an outcome
    is_counted: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    @classmethod
    def read(cls, rows: TableRows, arm: str, reward: str, person: str | None, arms: Sequence[str]) -> "PrivateRows":
        """Read each row by itself: an error would tell of it. A person who had several arms counts nowhere."""
        places = {name: place for place, name in enumerate(arms)}
        each = np.array([*(places.get(text, -1) for text in rows.column(arm).values), -1], np.int64)
        chosen, rewards = each[rows.column(arm).places], rows.column(reward).outcomes
        is_counted = (chosen >= 0) & np.isfinite(rewards)
        rewards = np.where(is_counted, rewards, 0.0)
        if person:
            first, of, counts = first_rows(rows.column(person))
            n_counted = np.bincount(of, is_counted)
            rewards = np.bincount(of, rewards) / np.maximum(n_counted, 1)
            is_counted = (n_counted > 0) & (np.bincount(of, chosen != chosen[first][of]) == 0)
            is_somebody = counts > 0
            rows, chosen = rows.of(first[is_somebody]), chosen[first][is_somebody]
            rewards, is_counted = rewards[is_somebody], is_counted[is_somebody]
        return cls(rows, ArmNames.of(arms), np.maximum(chosen, 0), rewards, (), (), is_counted)
