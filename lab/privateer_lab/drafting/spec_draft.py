"""A spec made from the columns of a data frame or a file: a draft, whose bounds and levels become public.

`draft` is for notebooks: ``print(draft(frame).text)``. What it takes from the data somebody has to confirm, since
everybody may read a spec.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import Any, cast

import numpy as np

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.sections import toml_tables
from privateer_core.spec.spec import Spec
from privateer_lab.drafting.column_choice import most_relevant_first, without_copies
from privateer_lab.drafting.column_profiles import TableRows, rows_of, shortened
from privateer_lab.drafting.feature_drafts import FeatureDrafts, features_of, rounded, segment_lines
from privateer_lab.drafting.fixed_sections import (
    algorithm_section,
    closing,
    labelled_people,
    opening,
    promise_for,
    trusted,
    with_filled_rounds,
)
from privateer_lab.drafting.logged_people import LoggedPeople, logged_people
from privateer_lab.drafting.outcome_columns import ArmNames, arms_of, bounds_of_reward, classes_of, reward_of
from privateer_lab.drafting.toml_values import toml
from privateer_lab.environments import environment_for
from privateer_lab.planning.algorithm_choice import AlgorithmChoice, choice_of
from privateer_lab.planning.other_algorithms import by_features, every_algorithm, with_effects, with_own_rounds


@dataclass(frozen=True)
class Draft:
    """A spec to be completed, and what has to be known about it.

    Attributes
    ----------
    text
        The spec, as TOML.
    confirm
        Sentences about what comes from the data and becomes public.
    notes
        Sentences about what else was decided, such as columns that were left out.
    log
        The rows of a log, with what was chosen and what came of it; None where the draft is of none.
    labelled
        The file whose rows are people that have a class; None where the draft is of none.
    bounded, drawn
        Its features, and the same with cut points of numbers from the data.
    """

    text: str
    confirm: tuple[str, ...]
    notes: tuple[str, ...]
    log: "_Log | None" = field(default=None, repr=False)
    labelled: Path | None = None
    bounded: FeatureDrafts | None = field(default=None, repr=False)
    drawn: FeatureDrafts | None = field(default=None, repr=False)

    @property
    def spec(self) -> Spec:
        """The spec."""
        return read_spec(self.text)

    @cached_property
    def people(self) -> LoggedPeople | None:
        """Simulated people made from the log; None without one. The model is fitted when they are first asked for."""
        return self.log.people(cast(ArmsSpec, self.spec)) if self.log else None

    @property
    def choice(self) -> AlgorithmChoice | None:
        """The algorithm that earns most in runs with these people; None where none was tried."""
        return self._tried if isinstance(self._tried, AlgorithmChoice) else None

    @property
    def chosen(self) -> list[str]:
        """Why the draft has its algorithm, or why none was tried; nothing where there are no people to try it on."""
        if isinstance(self._tried, SpecError):
            return [f"No algorithm was tried on these people: {self._tried}."]
        return [self._tried.sentence] if self._tried else []

    @cached_property
    def _tried(self) -> AlgorithmChoice | SpecError | None:
        """What was found in runs, in which people are drawn; None of a test, or where there are no people."""
        tables, other = toml_tables(self.text), toml_tables(self._with_cuts(self.text))
        if tables["algorithm"]["name"] not in by_features() or not (self.log or self.labelled):
            return None
        drawn = partial(with_own_rounds, other) if other != tables else None
        if self.labelled:
            for one in (tables, other):
                one["population"]["path"] = str(self.labelled.resolve())
            return choice_of(every_algorithm(tables, own_rounds=True), environment_for, drawn)
        assert self.people is not None
        people = self.people.people
        return choice_of(every_algorithm(tables, own_rounds=True), lambda _spec, _seed: people, drawn)

    def _with_cuts(self, text: str) -> str:
        """Return the spec with cut points of numbers from the data, where it has features of both kinds."""
        if not (self.bounded and self.drawn):
            return text
        return text.replace("\n".join(self.bounded.lines), "\n".join(self.drawn.lines))

    @property
    def confirmed(self) -> tuple[str, ...]:
        """What somebody has to confirm of the file that `write` writes."""
        if not (self.choice and self.choice.drawn is not None and self.bounded and self.drawn):
            return self.confirm
        others = [one for one in self.confirm if one not in self.bounded.confirm]
        return (*others, *self.drawn.confirm)

    @property
    def fitted(self) -> str:
        """The spec as TOML, with the algorithm of `choice`, and the cut points if they earn more."""
        if not self.choice:
            return self.text
        text = self.text if self.choice.drawn is None else self._with_cuts(self.text)
        tables = toml_tables(text)
        text = text.replace(algorithm_section(tables["algorithm"]["name"]), algorithm_section(self.choice.name))
        own, size = with_own_rounds(tables, self.choice.name), tables["experiment"].get("round_size")
        if own is not None and size not in (None, own.experiment.round_size):
            text = text.replace(f"round_size = {size}\n", "", 1)
        return with_filled_rounds(text)

    def write(self, path: "str | os.PathLike[str]") -> None:
        """Write the spec with the algorithm of `choice`, and beside it the people of a log, whom it then names."""
        file, text = Path(path), self.fitted
        if self.people:
            text += self.people.write(people_file(file))
        file.write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        said = "".join(f"<li>{escape(one)}</li>" for one in (*self.confirm, *self.notes))
        return f"<pre>{escape(self.text)}</pre><ul>{said}</ul>"


def people_file(spec: Path) -> Path:
    """Return the file of people beside a spec."""
    return spec.with_name(f"{spec.stem}.people.parquet")


@dataclass(frozen=True)
class _Log:
    """The rows of a log that have an option and a reward."""

    rows: TableRows
    arm: str
    reward: str
    names: ArmNames

    def people(self, spec: ArmsSpec) -> LoggedPeople:
        columns = [self.rows.column(name) for name in spec.features]
        rewards = reward_of(self.rows.column(self.reward))
        return logged_people(spec, columns, self.rows.column(self.arm), list(self.names.values), rewards)


def draft(
    frame: Any,
    *,
    reward: str | None = None,
    arm: str | None = None,
    ignore: Sequence[str] = (),
    arms: Sequence[str] = (),
    label: str | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    segments: Sequence[str] = (),
    name: str = "my-experiment",
    seen_from: Path | None = None,
) -> Draft:
    """Draft a spec from the types and values of a table's columns, as ``privateer spec-from`` does from a file.

    A spec is public. The draft's ``confirm`` lists what comes from the data, so that somebody may change or confirm it.
    With ``arm`` and ``reward`` the draft has ``people`` made from the rows, whom `plan` and `simulate` then play:
    ``made.people.notes`` say how well they fit.

    Parameters
    ----------
    frame
        A pandas or polars data frame, a pyarrow table, a mapping of names to values; or the path of a CSV or Parquet
        file.
    reward
        The column of what came of a choice. Its bounds become the reward's, and it is no feature.
    arm
        The column of what was chosen. Its values become the arms, and it is no feature.
    ignore
        More columns that are no features, such as the propensities of a log.
    arms
        Names of the options; by default those of the label, or two to be renamed.
    label
        A column that says which class somebody belongs to: no feature, but simulated people's truth.
    bounds
        Bounds of numeric columns that are public already, by name.
    segments
        Columns by which effects are wanted: the spec is that of a test, and these are its features.
    name
        The experiment's name.
    seen_from
        The folder that the spec will be in, if it names the file; by default the working directory.

    Raises
    ------
    SpecError
        If there are no such columns, none that makes a feature, or a name that no spec may have.

    Examples
    --------
    >>> import privateer_lab as lab
    >>> frame = {"hours": [38, 40, 25, 12], "arm": ["old", "new", "old", "new"], "reward": [0, 1, 1, 0]}
    >>> made = lab.spec_from(frame, reward="reward", arm="arm", bounds={"hours": (0, 80)})
    >>> made.spec.options, list(made.spec.features)
    (('new', 'old'), ['hours'])
    """
    path = str(frame) if isinstance(frame, str | Path) else None
    rows, bounds = rows_of(frame), dict(bounds or {})
    for wanted in [*bounds, *(one for one in (label, reward, arm, *ignore, *segments) if one)]:
        rows.column(wanted)
    _check_apart({"--arm": arm, "--reward": reward, "--label": label}, segments)
    notes = _about(rows)
    rows, whole = _complete(rows, [one for one in (arm, reward, label) if one], notes), rows
    names = arms_of(rows.column(arm)) if arm and not arms else ArmNames.given(arms)
    classes = classes_of(rows.column(label)) if label else ArmNames.given(())
    asked = rows, {label, reward, arm, *ignore} - {None}, bounds, segments, (arm, reward)
    features = _features(*asked)
    confirm, notes = list(features.confirm), notes + features.notes
    if (named := arm or label) and not arms:
        count = len(names.values or classes.values)
        confirm.insert(0, f"{shortened(named)}: the names of the {count} options are from the data")
    notes += names.notes(shortened(arm or label or "--arms"))
    if not names.values and not classes.values:
        notes.append("No options are given: rename first and second in experiment.arms, or give --arms.")
    notes += _half_a_log(arm, reward, label)
    options = names.allowed or classes.allowed or ["first", "second"]
    told, said = _reward(rows, reward, bounds.get(reward or ""), notes)
    confirm += said
    sections = [
        *opening(name, options, rows.total, measures=not segments),
        "[context.features]",
        *features.lines,
        "",
        *told,
    ]
    promise = promise_for(rows.total)
    notes.append(trusted(promise))
    sections += segment_lines(rows, segments, confirm)
    sections += closing(promise, with_effects() if segments else by_features()[0])
    if path and label:
        sections += labelled_people(os.path.relpath(path, seen_from), label, list(classes.values), options)
        sections += ['missing = "drop"  # rows without a class'] if rows is not whole else []
    log = _Log(rows, arm, reward, names) if arm and reward and not arms else None
    labelled = Path(path) if path and label else None
    made = Draft(with_filled_rounds("\n".join(sections) + "\n"), tuple(confirm), tuple(notes), log, labelled, features)
    if log or labelled:
        made = replace(made, drawn=_features(*asked, drawn=True))
    read_spec(made.text)
    return made


def _half_a_log(arm: str | None, reward: str | None, label: str | None) -> list[str]:
    """Say how people are made of a log, where rows may be one: an outcome among features is known too late."""
    if label or (arm and reward):
        return []
    wanted = {"--arm COLUMN names what people got": arm, "--reward COLUMN what came of it": reward}
    missing = " and ".join(way for way, given in wanted.items() if not given)
    return [f"If the rows are a log of earlier choices, {missing}: no device knows these columns before it chooses."]


def _check_apart(named: Mapping[str, str | None], segments: Sequence[str]) -> None:
    """Refuse a column that is named for two things."""
    seen: dict[str, str] = {}
    for option, column in [*named.items(), *(("--segments", one) for one in segments)]:
        if column and column in seen:
            detail = f"is the column of {seen[column]} too"
            raise SpecError(detail, field=f"{option} {shortened(column)}", remedy="name another column")
        if column:
            seen[column] = option


def _about(rows: TableRows) -> list[str]:
    if rows.kept == rows.total:
        return []
    return [f"Of {rows.total:,} rows a random sample of {rows.kept:,} was kept; all figures are of these."]


def _complete(rows: TableRows, columns: Sequence[str], notes: list[str]) -> TableRows:
    """Leave out rows without an option, a reward or a class."""
    known = np.all([rows.column(name).places >= 0 for name in columns], axis=0)
    if not known.any():
        told = " and ".join(map(shortened, columns))
        raise SpecError("has no row with a value", field=told, remedy="name other columns")
    if known.all():
        return rows
    notes.append(f"{int((~known).sum()):,} rows without {' or '.join(map(shortened, columns))} are left out.")
    return rows.of(known)


def _features(
    rows: TableRows,
    outside: set[str | None],
    bounds: Mapping[str, tuple[float, float]],
    segments: Sequence[str],
    log: tuple[str | None, str | None],
    *,
    drawn: bool = False,
) -> FeatureDrafts:
    """Make features of columns: of a wide table of those that tell most about options."""
    profiles = [
        one for one in rows.columns.values() if one.name in segments or (not segments and one.name not in outside)
    ]
    copies = list[str]()
    if not segments:
        profiles, copies = without_copies(profiles, rows.column(log[0]) if log[0] else None)
    found = features_of(profiles, bounds, drawn=drawn)
    if not found.full or not all(log):
        found.notes += copies
        return found
    arm, reward = (rows.column(name) for name in log if name)
    found = features_of(most_relevant_first(profiles, arm, reward_of(reward)), bounds, drawn=drawn)
    found.notes += copies
    found.notes.append("Features that tell most about which option is better for whom were taken first.")
    return found


def _reward(
    rows: TableRows, name: str | None, given: tuple[float, float] | None, notes: list[str]
) -> tuple[list[str], list[str]]:
    """Return the section of a log's rewards, and what of it somebody has to confirm.

    Of numbers it says where their bounds come from, and how much they vary between them.
    """
    if name is None:
        return [], []
    numbers, what = reward_of(rows.column(name)), shortened(name)
    if given is None and set(np.unique(numbers).tolist()) <= {0.0, 1.0}:
        rate = rounded(float(numbers.mean()))
        said = f"{what}: base_rate = {rate:g} of [reward], the share who say yes, is from the data"
        return ["[reward]  # from the data: confirm that it may be public", f"base_rate = {rate:g}", ""], [said]
    low, high, source = bounds_of_reward(numbers, given)
    inside = np.clip(numbers, low, high)
    told = {"base_rate": rounded(float(inside.mean())), "deviation": rounded(float(inside.std()))}
    usual = {"base_rate": low < told["base_rate"] < high, "deviation": 0 < told["deviation"] <= (high - low) / 2}
    lines = [f"{key} = {toml(one)}  # after clipping, from the data" for key, one in told.items() if usual[key]]
    keys = (["low", "high"] if source.from_data else []) + [key for key in told if usual[key]]
    said = f"{what}: {', '.join(keys)} of [reward] are from the data; its bounds: {source.words}"
    clipped = float(((numbers < low) | (numbers > high)).mean())
    notes.append(f"{what} is a number: {clipped:.1%} of the rows are clipped to the bounds ({source.words}).")
    remark = "  # from the data: confirm that it may be public" if keys else ""
    section = ["[reward]" + remark, 'kind = "numeric"', f"low = {toml(low)}", f"high = {toml(high)}", *lines, ""]
    return section, [said] if keys else []
