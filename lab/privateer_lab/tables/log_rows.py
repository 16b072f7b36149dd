"""Rows of logs: the rule of outcomes, arms by name, and rows with an arm and a reward."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from privateer_core.errors import SpecError
from privateer_core.spec.arms import ARM_NAME, ARMS_MIN
from privateer_core.spec.spec import ARMS_MAX
from privateer_lab.tables import shorten
from privateer_lab.tables.arm_counts import describe_gaps
from privateer_lab.tables.data_column import DataColumn, parse_number, sort_names
from privateer_lab.tables.data_table import TableRows

_UNIT: Final = (0.0, 1.0)
_MAX_OUTCOME: Final = 1e300


@dataclass(frozen=True)
class OutcomeRule:
    """The rule by which the cells of a column are outcomes."""

    name: str  # the column
    # the bounds of outcomes; None: those of the rows, or with a promise 0 and 1
    bounds: tuple[float, float] | None
    yes: str | None  # the text of outcome 1, while other texts are 0; None: texts are numbers, or yes and no
    # the outcome of a gap: ``low``, ``high`` or a number; None: its row is excluded
    missing_as: str | float | None
    # whether no cell may affect other rows, so that an invalid cell is a gap instead of an error
    is_private: bool

    def __post_init__(self) -> None:
        """Refuse options that exclude each other, and a value for gaps that no reward can have."""
        if self.yes is not None and self.bounds is not None:
            detail = "makes outcomes 1 and 0, which have no other bounds"
            raise SpecError(detail, field="--yes", remedy="leave --bounds out")
        low, high = self.bounds or (_UNIT if self.is_private or self.yes is not None else (-_MAX_OUTCOME, _MAX_OUTCOME))
        if self.missing_as is not None and not low <= self._gap_number(low, high) <= high:
            remedy = f"write low, high or a number within {'the bounds' if self.bounds else 'those of the reward'}"
            raise SpecError("must be a value of the reward", field="--missing-as", remedy=remedy)

    def _gap_number(self, low: float, high: float) -> float:
        """Return the outcome of a gap as a number; NaN if it is no number."""
        text = str(self.missing_as)
        return {"low": low, "high": high}.get(text, parse_number(text))

    @property
    def is_numeric(self) -> bool:
        """Whether the rule alone makes outcomes numeric."""
        return self.bounds is not None or (self.missing_as is not None and self._gap_number(*_UNIT) not in _UNIT)

    def apply(self, rows: TableRows) -> TableRows:
        """Apply the rule to the outcomes of rows; with a promise, invalid cells are gaps."""
        column = rows.column(self.name)
        if self.yes is not None:
            is_yes = np.array([text == self.yes for text in column.values], np.int64)
            codes = np.where(column.codes < 0, -1, np.append(is_yes, 0)[column.codes])
            column = DataColumn(self.name, ("0", "1"), codes)
        if self.is_private:
            is_outcome = np.isfinite(column.outcomes) if self.bounds else np.isin(column.outcomes, _UNIT)
            column = replace(column, codes=np.where(is_outcome, column.codes, -1))
        if self.missing_as is not None:
            finite = column.outcomes[np.isfinite(column.outcomes)]
            is_unit = self.is_private or self.yes is not None or not len(finite)
            ends = self.bounds or (_UNIT if is_unit else (finite.min(), finite.max()))
            texts = (*column.values, repr(float(self._gap_number(*ends))).replace(".", column.decimal))
            codes = np.where(column.codes < 0, len(column.values), column.codes)
            column = DataColumn(self.name, texts, codes, column.decimal)
        return TableRows({**rows.columns, self.name: column}, rows.total)

    def sentences(self) -> list[str]:
        """Describe the rule, independently of the rows."""
        sentences = []
        kinds = "is no number and no yes or no, count nowhere: --yes says which text is 1"
        gap_sentence = f"Rows of no named option, or whose {self.name} {kinds}."
        if self.yes is not None:
            sentences.append(f"{self.name} is 1 where it is {self.yes!r}, and 0 where it is something else.")
            if self.missing_as is None:
                sentences.append("NA, None and other marks of a gap are neither: --missing-as says what they count as.")
            gap_sentence = f"Rows of no named option, or without {self.name}, count nowhere."
        if self.missing_as is not None:
            sentences.append(f"Rows without {self.name} count as {self.missing_as}.")
            gap_sentence = "Rows of no named option count nowhere."
        if self.is_private:
            sentences.append(gap_sentence)
            if self.bounds is None and self.yes is None:
                other = "count as gaps" if self.missing_as is not None else "count nowhere either"
                remedy = f"give --bounds LOW:HIGH if {self.name} is a number"
                sentences.append(f"Numbers other than 0 and 1 {other}: {remedy}.")
        return sentences


Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
_MAX_NAME_LENGTH: Final = 64
_MAX_MIXED_SHARE: Final = 0.05
"""Largest share of participants with several arms that may be left out."""
_TOTAL_NAMES: Final = ("total", "totals", "grand total", "subtotal", "sum", "overall", "all")


@dataclass(frozen=True)
class ArmNames:
    """Arms by their names in the data, and by valid names of a spec."""

    values: Sequence[str]  # in the data
    allowed: Sequence[str]  # in a spec, in the same order

    @classmethod
    def from_names(cls, names: Sequence[str]) -> Self:
        """Make arms from the user's names, which a spec checks."""
        return cls(names, names)

    @classmethod
    def from_values(cls, values: Sequence[str]) -> Self:
        """Make arms from the values of a column."""
        allowed: list[str] = []
        for position, value in enumerate(values, 1):
            is_valid = [letter.isprintable() and re.fullmatch(ARM_NAME, letter) for letter in value]
            spaced = "".join(letter if valid else " " for letter, valid in zip(value, is_valid, strict=True))
            name = " ".join(spaced.split())[:_MAX_NAME_LENGTH].strip() or f"option {position}"
            while name in allowed:
                name = f"{name[: _MAX_NAME_LENGTH - 4]} {position}"
            allowed.append(name)
        return cls(values, allowed)

    def notes(self, column: str) -> list[str]:
        """Return sentences about arms that are renamed in the spec, and about probable duplicates."""
        pairs = list(zip(self.values, self.allowed, strict=True))
        changed = ", ".join(f"{shorten(value)!r} is {name!r}" for value, name in pairs if value != name)
        notes = []
        if changed:
            notes.append(f"{column}: names of options are shortened, and lack signs that no spec takes: {changed}.")
        names_by_folded_value: dict[str, list[str]] = {}
        for value, name in sorted(pairs):
            names_by_folded_value.setdefault(" ".join(value.casefold().split()), []).append(name)
        for names in names_by_folded_value.values():
            if len(names) > 1:
                name_list = " and ".join(map(repr, names))
                notes.append(f"{column}: {name_list} count as different options: write them alike if they are one.")
        return notes

    def with_control(self, control: str | None) -> Self:
        """Return the arms with the control first, or unchanged without one; refuse an unknown control."""
        if control is None:
            return self
        pairs = list(zip(self.values, self.allowed, strict=True))
        first = [pair for pair in pairs if control in pair]
        if not first:
            remedy = f"name one of {', '.join(shorten(name) for name in self.allowed)}"
            raise SpecError("is not among the arms", field="control", remedy=remedy)
        values, allowed = zip(*(first[:1] + [pair for pair in pairs if pair != first[0]]), strict=True)
        return type(self)(values, allowed)


def read_arms(column: DataColumn) -> ArmNames:
    """Read the arms of a log; refuse a single arm, or too many."""
    count = len(column.counts)
    if count < ARMS_MIN:
        remedy = "name the column that says what each person got"
        raise SpecError("every row has the same option", field=shorten(column.name), remedy=remedy)
    if count > ARMS_MAX:
        detail = f"has {count:,} different values, and an experiment at most {ARMS_MAX} options"
        remedy = "leave out rows of rare ones, or name another column"
        raise SpecError(detail, field=shorten(column.name), remedy=remedy)
    return ArmNames.from_values(sort_names(column.counts))


def read_classes(column: DataColumn) -> ArmNames:
    """Read the classes of a label; refuse a single class, or too many."""
    values = sort_names(column.counts)
    if not ARMS_MIN <= len(values) <= ARMS_MAX:
        detail = f"must have {ARMS_MIN} to {ARMS_MAX} different values"
        raise SpecError(detail, field=shorten(column.name), remedy="choose another column")
    return ArmNames.from_values(values)


def read_rewards(column: DataColumn, *, must_vary: bool = True, gaps: Sequence[str] = ()) -> Array:
    """Read rewards, (rows,), yes and no as 1 and 0, NaN for gaps; refuse a constant one, naming its ``gaps``."""
    field, outcomes = shorten(column.name), column.outcomes
    is_other = bool(np.isnan(outcomes[column.codes >= 0]).any())
    numbers = column.quantities[np.unique(column.codes[column.codes >= 0])]
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
    """The rows with an arm and a reward, one a participant."""

    rows: TableRows  # all their columns
    arms: ArmNames
    chosen: NDArray[np.int64]  # shape (n,): the index of each row's arm
    rewards: Array  # shape (n,)
    remarks: tuple[str, ...]  # sentences about rows that were left out or joined
    warnings: tuple[str, ...] = ()  # sentences about possible biases


def read_log_rows(
    rows: TableRows,
    arm: str,
    reward: str,
    person: str | None = None,
    rule: OutcomeRule | None = None,
    cluster: str | None = None,
    per: str | None = None,
) -> LogRows:
    """Read the rows with an arm, a reward and values in all named columns, joined by participant.

    Rows of a participant are joined: features are those of the first row, and the reward is the mean, so that each
    participant counts once (Hayes and Moulton 2017, *Cluster Randomised Trials*, Section 10.3: summaries by cluster).
    """
    remarks: list[str] = []
    has_arm = _find_non_totals(rows.column(arm), remarks)
    rows = rows.select(has_arm) if not has_arm.all() else rows
    column, outcome = rows.column(arm), rows.column(reward)
    unit = person or cluster
    gaps, warnings = describe_gaps(column, outcome, rows.column(unit) if unit else None)
    if rule and rule.missing_as is not None:
        warnings = []  # gaps count, so that no participant is left out
    rows = rule.apply(rows) if rule else rows
    rows = drop_incomplete_rows(rows, [arm, reward, *(name for name in (person, cluster, per) if name)], remarks)
    remarks += gaps
    if outcome.infinite:
        remarks.append(f"{outcome.infinite:,} of the rows without {shorten(reward)} have an infinite number.")
    rewards, first = read_rewards(rows.column(reward), gaps=gaps), np.arange(rows.n_rows)
    if person:
        first, rewards = _join_by_person(rows.column(person), rows.column(arm), rewards, reward, remarks)
        rows = rows.select(first)
    names = read_arms(rows.column(arm))
    indices = find_indices(rows.column(arm), names.values)
    return LogRows(rows, names, indices, rewards, tuple(remarks), tuple(warnings))


def find_indices(column: DataColumn, arms: Sequence[str]) -> NDArray[np.int64]:
    """Return the index of each row's arm, (rows,); -1 for other values and gaps."""
    index_by_arm = {arm: index for index, arm in enumerate(arms)}
    return np.array([*(index_by_arm.get(text, -1) for text in column.values), -1], np.int64)[column.codes]


def drop_incomplete_rows(rows: TableRows, names: Sequence[str], remarks: list[str]) -> TableRows:
    """Drop rows without a value in the named columns, and add a remark with their number; refuse to drop all."""
    is_known = np.all([rows.column(name).codes >= 0 for name in names], axis=0)
    if not is_known.any():
        listed = " and ".join(map(shorten, names))
        raise SpecError("has no row with a value", field=listed, remedy="name other columns")
    if is_known.all():
        return rows
    listed = " or ".join(shorten(name) for name in names if (rows.column(name).codes < 0).any())
    remarks.append(f"{int((~is_known).sum()):,} rows without {listed} are left out.")
    return rows.select(is_known)


def _find_non_totals(arm: DataColumn, remarks: list[str]) -> Mask:
    """Return the mask of rows that are no totals of others, (rows,)."""
    totals = [text for text, count in arm.counts.items() if count == 1 and text.casefold() in _TOTAL_NAMES]
    keep = np.ones(arm.rows, bool)
    for text in totals if len(arm.counts) - len(totals) >= ARMS_MIN else ():
        keep &= arm.codes != arm.values.index(text)
        remarks.append(f"{shorten(arm.name)}: the row of {text!r} is a sum of others, and is left out.")
    return keep


def find_first_rows(person: DataColumn) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return participants' first rows, each row's participant, and rows a participant; rows of nobody are number 0."""
    _, first, owner, counts = np.unique(person.codes, return_index=True, return_inverse=True, return_counts=True)
    return first, owner, np.where(person.codes[first] < 0, 0, counts)


def _join_by_person(
    person: DataColumn, arm: DataColumn, rewards: Array, reward: str, remarks: list[str]
) -> tuple[NDArray[np.int64], Array]:
    """Return the first row of each participant with a single arm, rising, and the mean reward of all their rows."""
    first, owner, counts = find_first_rows(person)
    means = np.bincount(owner, rewards) / counts
    is_mixed = np.bincount(owner, arm.codes != arm.codes[first][owner]) > 0
    name = shorten(person.name)
    if len(first) < person.rows:
        joined = f"each counts once, with the mean of their {shorten(reward)}"
        remarks.append(f"{person.rows:,} rows are {len(first):,} people by {name}: {joined}.")
    if is_mixed.any():
        remark = f"have several values of {shorten(arm.name)}, and are left out"
        remarks.append(f"{int(is_mixed.sum()):,} people by {name} {remark}.")
    if is_mixed.mean() > _MAX_MIXED_SHARE:
        detail = f"{int(is_mixed.sum()):,} of {len(first):,} people by {name} have several options"
        remedy = f"analyze with --cluster {name} instead of --person, if each row got its own; or leave them out"
        raise SpecError(detail, field=shorten(arm.name), remedy=remedy)
    order = np.argsort(first[~is_mixed])
    return first[~is_mixed][order], means[~is_mixed][order]


@dataclass(frozen=True)
class PrivateRows(LogRows):
    """All rows, or all participants, of which some are not counted."""

    # shape (n,): whether a row has a named arm and an outcome
    is_counted: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, bool))

    @classmethod
    def read(cls, rows: TableRows, arm: str, reward: str, person: str | None, arms: Sequence[str]) -> "PrivateRows":
        """Read each row independently, without revealing errors; participants with several arms are not counted."""
        chosen, rewards = find_indices(rows.column(arm), arms), rows.column(reward).outcomes
        is_counted = (chosen >= 0) & np.isfinite(rewards)
        rewards = np.where(is_counted, rewards, 0.0)
        if person:
            first_indices, owner, counts = find_first_rows(rows.column(person))
            n_counted = np.bincount(owner, is_counted)
            rewards = np.bincount(owner, rewards) / np.maximum(n_counted, 1)
            is_counted = (n_counted > 0) & (np.bincount(owner, chosen != chosen[first_indices][owner]) == 0)
            is_somebody = counts > 0
            rows, chosen = rows.select(first_indices[is_somebody]), chosen[first_indices][is_somebody]
            rewards, is_counted = rewards[is_somebody], is_counted[is_somebody]
        return cls(rows, ArmNames.from_values(arms), np.maximum(chosen, 0), rewards, (), (), is_counted)
