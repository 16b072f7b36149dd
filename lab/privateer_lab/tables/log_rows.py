"""The rows of a test or a log: who got which option, and what came of it. What is left out is counted and said."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ARM_NAME, ARMS_MIN
from privateer_core.spec.capabilities import ARMS_MAX
from privateer_lab.tables import shortened
from privateer_lab.tables.arm_counts import gaps_in_words
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import TableRows
from privateer_lab.tables.marks import in_order
from privateer_lab.tables.outcome_rule import OutcomeRule

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
_LETTERS: Final = 64
_MIXED_MAX: Final = 0.05
"""Share of people with several arms that may be left out."""
_TOTALS: Final = ("total", "totals", "grand total", "subtotal", "sum", "overall", "all")


@dataclass(frozen=True)
class ArmNames:
    """Options as the data call them, and as a spec may."""

    values: Sequence[str]  # as the data have them
    allowed: Sequence[str]  # as a spec may have them, in the same order

    @classmethod
    def given(cls, names: Sequence[str]) -> Self:
        """Return options by names that somebody chose, which a spec checks."""
        return cls(names, names)

    @classmethod
    def of(cls, values: Sequence[str]) -> Self:
        """Return options by values of a column."""
        allowed: list[str] = []
        for place, value in enumerate(values, 1):
            name = _allowed(value) or f"option {place}"
            while name in allowed:
                name = f"{name[: _LETTERS - 4]} {place}"
            allowed.append(name)
        return cls(values, allowed)

    def notes(self, column: str) -> list[str]:
        """Say which options have another name in the spec, and which are probably the same."""
        pairs = list(zip(self.values, self.allowed, strict=True))
        changed = ", ".join(f"{shortened(value)!r} is {name!r}" for value, name in pairs if value != name)
        notes = []
        if changed:
            notes.append(f"{column}: names of options are shortened, and lack signs that no spec takes: {changed}.")
        alike: dict[str, list[str]] = {}
        for value, name in sorted(pairs):
            alike.setdefault(" ".join(value.casefold().split()), []).append(name)
        for names in alike.values():
            if len(names) > 1:
                listed = " and ".join(map(repr, names))
                notes.append(f"{column}: {listed} count as different options: write them alike if they are one.")
        return notes

    def with_control(self, control: str | None) -> Self:
        """Return the options with the one first that the others are compared with."""
        if control is None:
            return self
        pairs = list(zip(self.values, self.allowed, strict=True))
        first = [pair for pair in pairs if control in pair]
        if not first:
            remedy = f"name one of {', '.join(shortened(name) for name in self.allowed)}"
            raise SpecError("is not among the arms", field="control", remedy=remedy)
        values, allowed = zip(*(first[:1] + [pair for pair in pairs if pair != first[0]]), strict=True)
        return type(self)(values, allowed)


def _allowed(value: str) -> str:
    """Return a name as near to a value as a spec allows."""
    letters = "".join(one if re.fullmatch(ARM_NAME, one) and one.isprintable() else " " for one in value)
    return " ".join(letters.split())[:_LETTERS].strip()


def arms_of(column: DataColumn) -> ArmNames:
    """Return the options of a log."""
    count = len(column.counts)
    if count < ARMS_MIN:
        remedy = "name the column that says what each person got"
        raise SpecError("every row has the same option", field=shortened(column.name), remedy=remedy)
    if count > ARMS_MAX:
        detail = f"has {count:,} different values, and an experiment at most {ARMS_MAX} options"
        remedy = "leave out rows of rare ones, or name another column"
        raise SpecError(detail, field=shortened(column.name), remedy=remedy)
    return ArmNames.of(in_order(column.counts))


def classes_of(column: DataColumn) -> ArmNames:
    """Return the classes of a label."""
    values = in_order(column.counts)
    if not ARMS_MIN <= len(values) <= ARMS_MAX:
        detail = f"must have {ARMS_MIN} to {ARMS_MAX} different values"
        raise SpecError(detail, field=shortened(column.name), remedy="choose another column")
    return ArmNames.of(values)


def rewards_of(column: DataColumn, *, must_vary: bool = True, gaps: Sequence[str] = ()) -> Array:
    """Return what came of each row's option, (rows,): numbers, or yes and no as 1 and 0; NaN where there is none.

    ``gaps``: sentences about rows without a reward, for the error that all others are the same.
    """
    field, outcomes = shortened(column.name), column.outcomes
    is_other = bool(np.isnan(outcomes[column.places >= 0]).any())
    numbers = column.quantities[np.unique(column.places[column.places >= 0])]
    has_words, is_unit = np.isnan(numbers).any(), np.isin(numbers[~np.isnan(numbers)], (0, 1)).all()
    if is_other or (has_words and not is_unit):
        remedy = "make it 1 and 0, or numbers; in `analyze`, --yes says which text is 1; or name another column"
        raise SpecError("must be numbers, or yes and no, and has other values", field=field, remedy=remedy)
    if must_vary and len(np.unique(outcomes[np.isfinite(outcomes)])) < 2:
        remedy = " ".join(["name another column, or give rows with other outcomes.", *gaps]).rstrip(".")
        raise SpecError("every row has the same reward, so nothing can be learned", field=field, remedy=remedy)
    return outcomes


@dataclass(frozen=True)
class LogRows:
    """The rows that have an option and a reward, one a person."""

    rows: TableRows  # all their columns
    arms: ArmNames  # the options
    chosen: NDArray[np.int64]  # shape (n,): the place of each row's option among them
    rewards: Array  # shape (n,)
    remarks: tuple[str, ...]  # what was left out or joined, in sentences
    warnings: tuple[str, ...] = ()  # what to look at before anybody believes an effect


def read_log_rows(
    rows: TableRows,
    arm: str,
    reward: str,
    person: str | None = None,
    rule: OutcomeRule | None = None,
    cluster: str | None = None,
    per: str | None = None,
) -> LogRows:
    """Return the rows of a table that have an option, a reward and what else is named, one a person.

    Rows of a person are joined: the first says who they are, and their reward is the mean of all, so that each person
    counts once (Hayes and Moulton 2017, *Cluster Randomised Trials*, Section 10.3: summaries by cluster).
    """
    remarks: list[str] = []
    has_arm = _without_totals(rows.column(arm), remarks)
    rows = rows.of(has_arm) if not has_arm.all() else rows
    column, outcome = rows.column(arm), rows.column(reward)
    unit = person or cluster
    gaps, warnings = gaps_in_words(column, outcome, rows.column(unit) if unit else None)
    if rule and rule.missing_as is not None:
        warnings = []  # gaps count, so that nobody is left out
    rows = rule.applied(rows) if rule else rows
    rows = complete_rows(rows, [arm, reward, *(name for name in (person, cluster, per) if name)], remarks)
    remarks += [*gaps, *_infinite(outcome)]
    rewards, first = rewards_of(rows.column(reward), gaps=gaps), np.arange(rows.kept)
    if person:
        first, rewards = _by_person(rows.column(person), rows.column(arm), rewards, reward, remarks)
        rows = rows.of(first)
    names = arms_of(rows.column(arm))
    place_of = {value: place for place, value in enumerate(names.values)}
    each = np.array([place_of.get(value, -1) for value in rows.column(arm).values], np.int64)
    return LogRows(rows, names, each[rows.column(arm).places], rewards, tuple(remarks), tuple(warnings))


def complete_rows(rows: TableRows, names: Sequence[str], remarks: list[str]) -> TableRows:
    """Leave out rows without a value in some columns, and say how many."""
    is_known = np.all([rows.column(name).places >= 0 for name in names], axis=0)
    if not is_known.any():
        listed = " and ".join(map(shortened, names))
        raise SpecError("has no row with a value", field=listed, remedy="name other columns")
    if is_known.all():
        return rows
    listed = " or ".join(shortened(name) for name in names if (rows.column(name).places < 0).any())
    remarks.append(f"{int((~is_known).sum()):,} rows without {listed} are left out.")
    return rows.of(is_known)


def _without_totals(arm: DataColumn, remarks: list[str]) -> Mask:
    """Return which rows are no sums of others, (rows,)."""
    totals = [text for text, count in arm.counts.items() if count == 1 and text.casefold() in _TOTALS]
    keep = np.ones(arm.rows, bool)
    for text in totals if len(arm.counts) - len(totals) >= ARMS_MIN else ():
        keep &= arm.places != arm.values.index(text)
        remarks.append(f"{shortened(arm.name)}: the row of {text!r} is a sum of others, and is left out.")
    return keep


def _infinite(column: DataColumn) -> list[str]:
    what = f"{column.infinite:,} of the rows without {shortened(column.name)} have an infinite number."
    return [what] if column.infinite else []


def first_rows(person: DataColumn) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each person, (people,), whose each row is, (rows,), and how many each has, (people,).

    Rows without a person are nobody's, together.
    """
    _, first, of, counts = np.unique(person.places, return_index=True, return_inverse=True, return_counts=True)
    return first, of, np.where(person.places[first] < 0, 0, counts)


def _by_person(
    person: DataColumn, arm: DataColumn, rewards: Array, reward: str, remarks: list[str]
) -> tuple[NDArray[np.int64], Array]:
    """Return the first row of each person who had one option, rising, and the mean reward of all their rows."""
    first, of, counts = first_rows(person)
    means = np.bincount(of, rewards) / counts
    is_mixed = np.bincount(of, arm.places != arm.places[first][of]) > 0
    name = shortened(person.name)
    if len(first) < person.rows:
        remarks.append(
            f"{person.rows:,} rows are {len(first):,} people by {name}: each counts once, with the mean of their "
            f"{shortened(reward)}."
        )
    if is_mixed.any():
        what = f"have several values of {shortened(arm.name)}, and are left out"
        remarks.append(f"{int(is_mixed.sum()):,} people by {name} {what}.")
    if is_mixed.mean() > _MIXED_MAX:
        detail = f"{int(is_mixed.sum()):,} of {len(first):,} people by {name} have several options"
        remedy = f"analyze with --cluster {name} instead of --person, if each row got its own; or leave them out"
        raise SpecError(detail, field=shortened(arm.name), remedy=remedy)
    order = np.argsort(first[~is_mixed])
    return first[~is_mixed][order], means[~is_mixed][order]
