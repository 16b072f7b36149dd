"""A spec made from the columns of a data frame or a file: a draft, whose bounds and levels become public.

`draft` is for notebooks: ``print(draft(frame).text)``. What it takes from the data somebody has to confirm, since
everybody may read a spec.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from privateer_core.algorithms import read_spec
from privateer_lab.clusters import few_clusters
from privateer_lab.drafting.column_choice import most_relevant_first, without_copies
from privateer_lab.drafting.feature_drafts import FeatureDrafts, features_of, identifies, no_feature, segment_lines
from privateer_lab.drafting.fixed_sections import (
    closing,
    labelled_people,
    opening,
    promise_for,
    trusted,
    with_filled_rounds,
)
from privateer_lab.drafting.given_away import columns_that_tell
from privateer_lab.drafting.reward_drafts import reward_section
from privateer_lab.drafting.written_draft import EVERYBODY, Draft, LoggedChoices
from privateer_lab.planning.other_algorithms import by_features, with_effects
from privateer_lab.tables import shortened
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

EVERYBODY_LINE: Final = 'everybody = { levels = ["everybody"] }  # nobody is told apart'
_FIXED: Final = (
    'allocation = "fixed"  # finds most; without this line worse options get fewer people, and less is found'
)
_TOLD: Final = "it tells the outcome nearly without error, and no device knows it before it chooses"


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
        played = LoggedChoices(log.rows, order[log.chosen], rewards, reward, lower_is_better, cluster)
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
