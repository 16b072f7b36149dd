"""A spec made from the columns of a data frame or a file: a draft, whose bounds and levels become public.

`draft` is for notebooks: ``print(draft(frame).text)``. What it takes from the data somebody has to confirm, since
everybody may read a spec.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms import read_spec
from privateer_core.errors import SpecError
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.sections import toml_tables
from privateer_core.spec.spec import Spec
from privateer_lab.clusters import few_clusters
from privateer_lab.drafting.column_choice import most_relevant_first, propensities_of, without_copies
from privateer_lab.drafting.draft_choice import choice_for_classes, choice_for_log
from privateer_lab.drafting.feature_drafts import FeatureDrafts, features_of, identifies, no_feature, segment_lines
from privateer_lab.drafting.fixed_sections import (
    algorithm_section,
    closing,
    labelled_people,
    opening,
    promise_for,
    trusted,
    with_filled_rounds,
)
from privateer_lab.drafting.given_away import columns_that_tell
from privateer_lab.drafting.logged_people import LoggedPeople, logged_people
from privateer_lab.drafting.reward_drafts import reward_section
from privateer_lab.drafting.toml_values import toml
from privateer_lab.planning.algorithm_choice import AlgorithmChoice
from privateer_lab.planning.other_algorithms import by_features, with_effects, with_own_rounds
from privateer_lab.tables import shortened
from privateer_lab.tables.data_column import DataColumn
from privateer_lab.tables.data_table import SAMPLE, DataTable, TableRows, check_apart, check_named
from privateer_lab.tables.log_rows import (
    ArmNames,
    LogRows,
    arms_of,
    classes_of,
    complete_rows,
    read_log_rows,
    rewards_of,
)
from privateer_lab.tables.remarks import code_remarks, table_remarks

EVERYBODY: Final = "everybody"
EVERYBODY_LINE: Final = 'everybody = { levels = ["everybody"] }  # nobody is told apart'
_FIXED: Final = (
    'allocation = "fixed"  # finds most; without this line worse options get fewer people, and less is found'
)
_TOLD: Final = "it tells the outcome nearly without error, and no device knows it before it chooses"


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
        """What was found in runs, in which people are drawn; None of a test, or where no people are to be believed."""
        tables = toml_tables(self.text)
        if tables["algorithm"]["name"] not in by_features() or not (self.log or self.labelled):
            return None
        if self.people and self.people.contradictions:
            return None
        cut = toml_tables(self._with_cuts(self.text))
        if self.labelled:
            return choice_for_classes(self.labelled, tables, cut)
        assert self.people is not None
        return choice_for_log(self.people, tables, cut)

    def _with_cuts(self, text: str) -> str:
        """Return the spec with cut points of numbers from the data, where it has features of both kinds."""
        if not (self.bounded and self.drawn):
            return text
        return text.replace("\n".join(self.bounded.lines), "\n".join(self.drawn.lines))

    @property
    def _features(self) -> FeatureDrafts | None:
        return self.drawn if self.choice and self.choice.drawn is not None and self.drawn else self.bounded

    @property
    def confirmed(self) -> tuple[str, ...]:
        """What somebody has to confirm of the file that `write` writes."""
        if not (self.choice and self.bounded and self._features):
            return self.confirm
        others = [one for one in self.confirm if one not in self.bounded.confirm]
        kept = self._features.by_name if self.choice.kept is None else self.choice.kept
        return (*others, *self._features.confirm_of(kept))

    @property
    def fitted(self) -> str:
        """The spec as TOML, with the algorithm and the features of `choice`, and the cut points if they earn more."""
        if not (self.choice and self.bounded and self._features):
            return self.text
        text, name, kept = self.text, self.choice.name, self.choice.kept
        tables = toml_tables(text)
        if self.choice.left_out:
            every, some = (f"arms = {toml(list(one))}" for one in (self.spec.options, self.choice.options))
            text = text.replace(every, f"# {self.choice.why_fewer}\n# {every}\n{some}", 1)
        lines = self._features.lines if kept is None else self._features.kept(kept, self.choice.why)
        head = "# [context.features]" if kept == () else "[context.features]"
        text = text.replace("\n".join(["[context.features]", *self.bounded.lines]), "\n".join([head, *lines])).replace(
            algorithm_section(tables["algorithm"]["name"]), algorithm_section(name)
        )
        if kept == ():
            text = text.replace("\ngain_share", "\n# gain_share")
        own, size = with_own_rounds(tables, name), tables["experiment"].get("round_size")
        if own is not None and size not in (None, own.experiment.round_size):
            text = text.replace(f"round_size = {size}\n", "", 1)
        return with_filled_rounds(text)

    def write(self, path: "str | os.PathLike[str]") -> None:
        """Write the spec with the algorithm of `choice`, and beside it the people of a log, whom it then names."""
        file, text = Path(path), self.fitted
        if self.people:
            some = self.choice.options if self.choice and self.choice.left_out else self.spec.options
            text += self.people.write(people_file(file), some)
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
    chosen: NDArray[np.int64]
    rewards: NDArray[np.float64]  # of which more is better
    name: str  # what the table calls them
    is_turned: bool  # whether less of that is better
    cluster: str | None  # what rows depend on each other by

    def people(self, spec: ArmsSpec) -> LoggedPeople:
        everybody = DataColumn(EVERYBODY, (EVERYBODY,), np.zeros(self.rows.kept, np.int64))
        columns = [self.rows.columns.get(name, everybody) for name in spec.features]
        turned = f"{'not' if spec.reward.kind == 'binary' else 'negative'} {self.name}"
        clusters = self.rows.column(self.cluster).places if self.cluster else None
        called, known = turned if self.is_turned else self.name, propensities_of(self.rows.columns.values())
        return logged_people(spec, columns, self.chosen, self.rewards, called, known, clusters)


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
    person: str | None = None,
    cluster: str | None = None,
    control: str | None = None,
    lower_is_better: bool = False,
    missing: Sequence[str] = (),
    model: str | None = None,
    epsilon: float | None = None,
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
    person
        The column of people, if some have several rows: each counts once, with the mean of their rewards.
    cluster
        The column of what rows, or people, depend on each other by, such as shops: no feature, and all errors are those
        of clusters.
    control
        The option with which others are compared; by default the first by name.
    lower_is_better
        Whether less of the reward is better, as of waiting times: the spec's reward is no instead of yes, or the
        negative.
    missing
        Texts that stand for no value, such as ``"999"``, beside the usual ones.
    model, epsilon
        The promise: a trust model and an epsilon; by default epsilon 1 under a model for so many people.

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
    path, bounds = (str(frame) if isinstance(frame, str | Path) else None), dict(bounds or {})
    table = DataTable(frame, missing=missing)
    named = [one for one in (arm, reward, label, person, cluster) if one]
    check_named([*bounds, *named, *ignore, *segments], table.header)
    columns = {"--arm": arm, "--reward": reward, "--label": label, "--person": person, "--cluster": cluster}
    check_apart(columns, segments)
    whole = table.read(most=SAMPLE)
    notes = [
        *_about(whole),
        *table_remarks(whole, [one for one in (arm, reward, label, *segments) if one], person or cluster),
    ]
    rows, log = _kept_rows(whole, named, (arm, reward, person, cluster), notes)
    names = ArmNames.given(arms)
    if arm and not arms:
        names = (log.arms if log else arms_of(rows.column(arm))).with_control(control)
    classes = classes_of(rows.column(label)) if label else ArmNames.given(())
    every = "every row" if rows.kept == whole.kept else "every row that counts"
    which = "the first row of each person" if person else every
    asked = (rows, which), {*named, *ignore}, bounds, segments, (log, arm, cluster)
    features = _features(*asked)
    confirm, notes = (
        _named_options(arm or label, names if arm else classes, arms) + features.confirm,
        notes + features.notes,
    )
    notes += [*names.notes(shortened(arm or label or "--arms")), *_half_a_log(arm, reward, label)]
    if not names.values and not classes.values:
        notes.append("No options are given: rename first and second in experiment.arms, or give --arms.")
    options = names.allowed or classes.allowed or ["first", "second"]
    rewards = log.rewards if log else rewards_of(rows.column(reward)) if reward else None
    told, said, rewards = reward_section(rewards, reward, bounds.get(reward or ""), notes, lower_is_better)
    notes += code_remarks(rows.column(reward)) if reward else []
    is_test, promise = bool(segments) or EVERYBODY_LINE in features.lines, promise_for(rows.total, model, epsilon)
    sections = opening(name, options, rows.total, measures=not is_test)
    sections += ["[context.features]", *features.lines, "", *told]
    notes += [] if model else [trusted(promise)]
    confirm += said
    sections += segment_lines(rows, segments, confirm)
    sections += closing(promise, with_effects() if is_test else by_features()[0])
    sections += [_FIXED] if is_test else []
    if path and label:
        sections += labelled_people(os.path.relpath(path, seen_from), label, list(classes.values), options)
        sections += ['missing = "drop"  # rows without a class'] if rows.kept < whole.kept else []
    played = None
    if log and reward and rewards is not None and not arms:
        order = np.array([list(names.values).index(value) for value in log.arms.values])
        played = _Log(log.rows, order[log.chosen], rewards, reward, lower_is_better, cluster)
    labelled = Path(path) if path and label else None
    text = with_filled_rounds("\n".join(sections) + "\n")
    made = Draft(text, tuple(confirm), tuple(notes), played, labelled, features)
    if (played or labelled) and not is_test:
        made = replace(made, drawn=_features(*asked, drawn=True))
    read_spec(made.text)
    return made


def _kept_rows(
    rows: TableRows, named: list[str], log: tuple[str | None, ...], notes: list[str]
) -> tuple[TableRows, LogRows | None]:
    """Return the rows that have what was named, and the log that they are if that is an option and a reward."""
    arm, reward, person, cluster = log
    if arm and reward:
        found = read_log_rows(rows, arm, reward, person, cluster=cluster)
        few = few_clusters(len(found.rows.column(cluster).counts), shortened(cluster)) if cluster else []
        notes += [*found.remarks, *(f"Warning: {warning}." for warning in (*found.warnings, *few))]
        return found.rows, found
    return complete_rows(rows, named, notes) if named else rows, None


def _named_options(column: str | None, names: ArmNames, arms: Sequence[str]) -> list[str]:
    """Say that names of options are from the data."""
    if column is None or arms:
        return []
    return [f"{shortened(column)}: the names of the {len(names.values)} options are from the data"]


def _half_a_log(arm: str | None, reward: str | None, label: str | None) -> list[str]:
    """Say how people are made of a log, where rows may be one: an outcome among features is known too late."""
    if label or (arm and reward):
        return []
    wanted = {"--arm COLUMN names what people got": arm, "--reward COLUMN what came of it": reward}
    missing = " and ".join(way for way, given in wanted.items() if not given)
    return [f"If the rows are a log of earlier choices, {missing}: no device knows these columns before it chooses."]


def _about(rows: TableRows) -> list[str]:
    if rows.kept == rows.total:
        return []
    return [f"Of {rows.total:,} rows a random sample of {rows.kept:,} was kept; all figures are of these."]


def _features(
    named_rows: tuple[TableRows, str],
    outside: set[str],
    bounds: Mapping[str, tuple[float, float]],
    segments: Sequence[str],
    log: tuple[LogRows | None, str | None, str | None],
    *,
    drawn: bool = False,
) -> FeatureDrafts:
    """Make features of columns: of a wide table of those that tell most about options.

    A log without any makes the test of everybody.
    """
    rows, which = named_rows
    if segments:
        return features_of([rows.column(name) for name in segments], bounds, drawn=drawn, is_asked=True, rows=which)
    rows_log, arm, cluster = log
    profiles = [one for one in rows.columns.values() if one.name not in outside]
    by_name = (None if name is None else rows.column(name) for name in (arm, cluster))
    profiles, notes = without_copies(profiles, *by_name)
    if rows_log:
        told = columns_that_tell([one for one in profiles if not identifies(one)], rows_log.rewards)
        notes += [f"{shortened(one.name)} is left out: {_TOLD}." for one in profiles if one.name in told]
        profiles = [one for one in profiles if one.name not in told]
    found = features_of(profiles, bounds, drawn=drawn, rows=which)
    if found.full and rows_log and arm:
        profiles = most_relevant_first(profiles, rows.column(arm), rows_log.rewards)
        found = features_of(profiles, bounds, drawn=drawn, rows=which)
        found.notes.append("Features that tell most about which option is better for whom were taken first.")
    found.notes = notes + found.notes
    if not found.by_name and not rows_log:
        raise no_feature(found)
    if not found.by_name:
        found.by_name[EVERYBODY] = EVERYBODY_LINE
        found.notes.append("No column makes a feature: this is the spec of a test among everybody.")
    return found
