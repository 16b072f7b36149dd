"""Analysis of a finished A/B test from its rows, as an experiment with one look, optionally with a curator's noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.answer import Answer
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TRUST, Curator
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.analysis.clusters import Clusters, few_cluster_warnings, linearize_ratios, read_denominators
from privateer_lab.analysis.columns import (
    PUBLIC,
    Segments,
    adjusted_rewards,
    balance_warnings,
    build_feature,
    covariate_columns,
    describe_adjustment,
    read_segments,
)
from privateer_lab.analysis.one_look import OneLook, RowCount
from privateer_lab.notebook.results import ExperimentResult
from privateer_lab.notebook.tabular import ResultTable, Tabular
from privateer_lab.planning.other_algorithms import effect_algorithm
from privateer_lab.tables import data_table
from privateer_lab.tables.arm_counts import describe_split
from privateer_lab.tables.data_column import sort_names
from privateer_lab.tables.log_rows import ArmNames, LogRows, OutcomeRule, PrivateRows, read_log_rows
from privateer_lab.tables.rewards import (
    PARTICIPANT_NAME,
    RowOutcomes,
    compute_outer_bounds,
    describe_codes,
    describe_outcome,
    describe_table,
    is_yes_or_no,
    warn_of_repeated_participants,
)


@dataclass(frozen=True)
class SummedOutcomes:
    """Outcomes by row or by cluster, with adjustment by covariates."""

    # look, outcomes: rows, or one row of each cluster, and their outcomes
    look: OneLook
    outcomes: RowOutcomes
    unadjusted: RowOutcomes | None  # outcomes without adjustment; None if there are no covariates
    arms: NDArray[np.int64]  # shape (m,): arms of the randomized units
    cluster_indices: NDArray[np.int64] | None  # shape (m,): cluster of each, if clusters are in both arms
    clusters: int | None  # number of clusters; None: rows are not clustered
    sentences: tuple[str, ...]  # descriptions of the steps


@dataclass(frozen=True)
class SumColumns:
    """Columns for sums over rows."""

    per: str | None  # denominator of outcomes, if any
    cluster: str | None  # clusters of dependent rows, if any
    adjust: Sequence[str]  # covariates measured before the test

    def __post_init__(self) -> None:
        if isinstance(self.adjust, str):
            remedy = f"write adjust=[{self.adjust!r}]"
            raise SpecError("must be a list of names of columns", field="adjust", remedy=remedy)

    def check(self, part: str | None, *, is_private: bool) -> None:
        """Refuse sums with a privacy promise, and sums that would be divided by a column of people or segments."""
        options = {"--cluster": self.cluster, "--per": self.per, "--adjust": next(iter(self.adjust), None)}
        for option, column in options.items():
            if column and is_private:
                detail = "needs sums of rows that a promise does not have of a finished test"
                remedy = "leave it out, or epsilon; --person counts people once each"
                raise SpecError(detail, field=option, remedy=remedy)
            if column and part and option != "--adjust":
                detail = f"is about sums over everybody, which {part} would part"
                remedy = "leave out --person and --segment; --cluster may name people"
                raise SpecError(detail, field=option, remedy=remedy)

    def sum_outcomes(self, look: OneLook, outcomes: RowOutcomes) -> SummedOutcomes:
        """Return the outcomes by row or cluster, divided and adjusted."""
        rows, arms, values, sentences = look.rows, look.chosen, outcomes.clipped_values, list[str]()
        clusters = Clusters.read(rows.column(self.cluster), arms) if self.cluster else None
        groups = look.find_segments(outcomes) if look.parts else np.zeros_like(arms)
        if self.per:
            values = linearize_ratios(values, read_denominators(rows.column(self.per)), arms)
            ratio = f"{look.name} per {self.per}"
            sentences.append(f"Effects are differences of {ratio}: of ratios of sums over an arm's rows.")
        plain_outcomes = outcomes.with_values(values) if self.per else outcomes
        if clusters:
            look = look.select_rows(clusters.first_rows)
            plain_outcomes = outcomes.with_values(clusters.linearize(values))
            look = replace(look, warnings=(*look.warnings, *few_cluster_warnings(clusters.count, clusters.name)))
            sentences.append(clusters.describe(look.name))
        if self.per:
            look = replace(look, name=ratio)
        n_clusters = clusters.count if clusters else None
        mixed = clusters if clusters and clusters.has_mixed else None
        split_arms, places = (arms, mixed.cluster_indices[mixed.units]) if mixed else (look.chosen, None)
        if not self.adjust:
            return SummedOutcomes(look, plain_outcomes, None, split_arms, places, n_clusters, tuple(sentences))
        columns = covariate_columns(rows, self.adjust)
        values = adjusted_rewards(values, columns, arms, groups)
        if clusters:
            values = clusters.linearize(values)
            columns = np.stack([clusters.linearize(column) for column in columns.T], axis=1)
        warnings = balance_warnings(columns, look.chosen, self.adjust)
        look = replace(look, warnings=(*look.warnings, *warnings))
        outcomes = outcomes.with_values(values)
        return SummedOutcomes(look, outcomes, plain_outcomes, split_arms, places, n_clusters, tuple(sentences))


_UNIT: Final = (0.0, 1.0)
_ROUNDING_TOLERANCE: Final = 1e-6
"""Tolerance of rounding in a sum of shares."""
_PER_ROW: Final = "The promise is to each row: who has several has it for each of them, unless --person names people."


@dataclass(frozen=True, repr=False)
class FinishedTest(Tabular):
    """The effects of a finished test: a row for each effect.

    Attributes
    ----------
    spec
        The experiment that the test is analyzed as.
    result
        Effects with intervals and decisions, and what they rest on.
    assumed
        Sentences about what was read from the rows or assumed.
    rests
        Sentence with the number of rows, people or clusters; with a promise it is estimated.
    unadjusted
        The answer without the adjustment; None if there are no covariates.
    """

    spec: ArmsSpec
    result: ExperimentResult
    assumed: tuple[str, ...]
    rests: str
    unadjusted: Answer | None = None

    @property
    def answer(self) -> Answer:
        """The answer in the format of an experiment on a server."""
        return self.result.answer

    @property
    @override
    def table(self) -> ResultTable:
        return self.result.table

    @property
    @override
    def notes(self) -> Sequence[str]:
        return *self.assumed, *self.result.notes, self.rests


def analyze(
    frame: Any,
    *,
    arm: str = "arm",
    reward: str = "reward",
    control: str | None = None,
    segments: Segments | Sequence[str] = (),
    shares: Mapping[str, float] | None = None,
    bounds: tuple[float, float] | None = None,
    epsilon: float | None = None,
    level: float = 0.05,
    lower_is_better: bool = False,
    person: str | None = None,
    cluster: str | None = None,
    per: str | None = None,
    adjust: Sequence[str] = (),
    yes: str | None = None,
    missing: Sequence[str] = (),
    missing_as: str | float | None = None,
    decimal: str | None = None,
) -> FinishedTest:
    """Estimate the effects of a finished randomized test from its rows.

    Privacy: without ``epsilon`` nothing is private, and the answer is for those who may read the rows. With it every
    sum that the answer rests on has a curator's noise, and the answer as a whole is epsilon-private, should any row be
    another. Arms, segments and bounds are public: you give them, and none is taken from the rows. So are the number of
    rows, or with ``person`` of people, and the form of a file, such as its separator. No row is refused then: a row of
    an unknown arm, or whose reward cannot be read, counts nowhere, and a segment that cannot be read is another one.
    With ``person`` the promise is to a person with all their rows. Errors are for those who may read the rows: of a
    file that is no table, say. Each answer costs ``epsilon`` again, and nothing here adds up what several cost.

    Parameters
    ----------
    frame
        A pandas or polars data frame, a pyarrow table, a mapping of names to values; or the path of a CSV or Parquet
        file. A row is a person.
    arm, reward
        Columns of the arm that a person got, and of what came of it, in its own unit.
    control
        The arm with which the others are compared; by default the first by name, or the least if names are numbers.
    segments
        Columns by which effects are told apart. A mapping also says how: texts are the values of a column, ``"other"``
        among them stands for all that are not listed; numbers are where a segment ends and the next begins. Without,
        each value in the rows is a segment.
    shares
        The share of people that each arm was meant to get, or ratios in whole numbers. How far the rows are from it is
        tested; without, the answer says how far they are from equal shares, and warns of nothing.
    bounds
        The least and the largest reward that count: others are clipped to them. By default those of the rows, so that
        effects are differences of means. With ``epsilon`` by default just 0 and 1, yes and no count.
    epsilon
        The promise to each person; None: no noise.
    level
        One minus the confidence of the intervals.
    lower_is_better
        Whether less of the reward is better, as of waiting times: effects say how much lower it is.
    person
        The column of people, if some have several rows: each counts once, with the mean of their rewards. Who has rows
        of several arms is left out.
    cluster
        The column of what depends on each other, such as shops or schools, or people who got an arm at each visit: each
        row counts the same, and intervals are those of clusters.
    per
        The column by which the reward is divided, as clicks by views: effects are differences of ratios of sums.
    adjust
        Columns that were measured before anybody got an arm, such as what a person spent before: effects are adjusted
        by them, which makes intervals narrower. `FinishedTest.unadjusted` has those without. With ``person`` they are
        those of a person's first row.
    yes
        The text of ``reward`` that counts as 1, such as ``"cured"``; other texts count as 0.
    missing
        Texts that stand for no value, such as ``"999"``, beside the usual ones.
    missing_as
        What a missing reward counts as: ``"low"`` or ``"high"``, the least or the largest that counts, or a number. By
        default its row counts nowhere, and without ``epsilon`` it is tested whether arms differ in such rows.
    decimal
        The decimal sign of a CSV file; by default it is found, or with ``epsilon`` a point.

    Raises
    ------
    SpecError
        Naming a column or an argument, its constraint and the remedy.

    Examples
    --------
    >>> import numpy as np
    >>> import privateer_lab as lab
    >>> rng = np.random.default_rng(0)
    >>> rows = {"arm": rng.choice(["new", "old"], 5000), "reward": rng.random(5000) < 0.2}
    >>> found = lab.analyze(rows, control="old")
    >>> found.answer.effects[0].is_decided, found.answer.people
    (False, 5000)
    """
    is_private, parts, shares = epsilon is not None, read_segments(segments), _normalize_shares(shares)
    table = _open_table(frame, missing, decimal, is_private=is_private)
    sums = SumColumns(per, cluster, adjust)
    roles = [arm, reward, *parts, *sums.adjust, *(column for column in (person, cluster, per) if column)]
    data_table.check_columns_exist(roles, table.header)
    columns = {"--arm": arm, "--reward": reward, "--person": person, "--cluster": cluster, "--per": per}
    data_table.check_distinct_columns(columns, parts)
    data_table.check_distinct_columns(columns, sums.adjust, "--adjust")
    sums.check(person or next(iter(parts), None), is_private=is_private)
    if is_private and not shares:
        detail = "must be given with epsilon: names of arms are public"
        raise SpecError(detail, field="shares", remedy=f"{PUBLIC}, as in old=0.5 and new=0.5")
    rule = OutcomeRule(reward, bounds, yes, missing_as, is_private)
    ids = [] if is_private else [name for name in table.header if PARTICIPANT_NAME.search(name) and name not in roles]
    raw = table.read(None if table.rows <= data_table.MAX_SAMPLE_ROWS else [*roles, *ids])
    log, remarks, warnings = _read_rows(raw, (arm, reward, person), sums, roles, rule, [*(shares or ())])
    names, chosen = _read_arms(log, arm, control, shares)
    rewards, arms, rows = log.rewards, tuple(names.allowed), log.rows
    is_number = rule.is_numeric or person is not None if is_private else not is_yes_or_no(rewards)
    outcomes = RowOutcomes(rewards, compute_outer_bounds(rewards, bounds or _UNIT if is_private else bounds), is_number)
    sentences = [*rule.sentences(), *([_PER_ROW] if is_private and not person else [])]
    if not is_private:
        sentences += [outcomes.bounds.describe_clipping(rewards, reward)] if is_number else []
        sentences += [*remarks, *names.notes(arm), *describe_codes(rows.column(reward)), *describe_outcome(raw, reward)]
    features = {column: build_feature(rows, column, values, is_private=is_private) for column, values in parts.items()}
    cuts = {column: values for column, values in parts.items() if "levels" not in features[column]}
    model = next(name for name, row in TRUST.items() if row.curator is Curator.SERVER and row.promises == is_private)
    allocation = {"allocation_ratio": [shares[value] for value in names.values]} if shares else {}
    tables = {
        "experiment": {"name": "test", "arms": list(arms), "horizon": len(rewards), "round_size": len(rewards)},
        **({"context": {"features": features}, "segments": {"features": list(parts), "cuts": cuts}} if parts else {}),
        "privacy": {"model": model, **({"epsilon": epsilon} if is_private else {})},
        "algorithm": {"name": effect_algorithm(), "allocation": "fixed", "significance_level": level, **allocation},
    }
    is_counted, has_shares = log.is_counted if isinstance(log, PrivateRows) else None, shares is not None
    look = OneLook(tables, rows, parts, chosen, is_counted, reward, lower_is_better, has_shares, tuple(warnings))
    summed = sums.sum_outcomes(look, outcomes)
    result, unadjusted = summed.look.analyze_outcomes(summed.outcomes), None
    sentences += summed.sentences
    if summed.unadjusted:
        unadjusted = summed.look.analyze_outcomes(summed.unadjusted).result.answer
        sentences += describe_adjustment(unadjusted, result.result.answer, sums.adjust)
    if control is None:
        sentences.append(f"Others are compared with {arms[0]}, the first by name: --control names another.")
    if not is_private:
        declared = dict(zip(arms, allocation["allocation_ratio"], strict=True)) if shares else None
        # Rows without an outcome were given arms as well; of people and clusters there is one arm each.
        arm_counts, counts = raw.column(arm).counts, np.bincount(summed.arms, minlength=len(arms))
        if not (person or cluster) and all(name in arm_counts for name in arms):
            counts = np.array([arm_counts[name] for name in arms])
        mixed_clusters = None if summed.cluster_indices is None else (summed.arms, summed.cluster_indices)
        sentences.append(describe_split(counts, arms, declared, mixed_clusters))
    unit = "clusters" if cluster else "people" if person else "rows"
    row_count = result.row_count if summed.clusters is None else RowCount(summed.clusters, 0.0)
    rests = row_count.describe(unit, len(rewards) if is_private else raw.n_rows)
    return FinishedTest(result.spec, result.result, (result.direction, *sentences), rests, unadjusted)


def _open_table(frame: Any, missing: Sequence[str], decimal: str | None, *, is_private: bool) -> data_table.DataTable:
    """Open a table; with a privacy promise its rows do not decide the decimal sign."""
    decimal_sign = "." if is_private and not decimal else decimal
    table = data_table.DataTable(frame, missing=missing, decimal=decimal_sign, by_row=is_private)
    if is_private and not decimal and any(source.separator != "," for source in table.sources):
        detail = "must be given with epsilon, since the file is not separated by commas"
        raise SpecError(detail, field="--decimal", remedy="give the decimal sign of its numbers, '.' or ','")
    return table


def _read_rows(
    rows: data_table.TableRows,
    role_columns: tuple[str, str, str | None],
    sums: SumColumns,
    roles: Sequence[str],
    rule: OutcomeRule,
    arms: Sequence[str],
) -> tuple[LogRows, list[str], list[str]]:
    """Read the rows by arm, reward and person; return them with remarks and warnings."""
    arm, reward, person = role_columns
    if rule.is_private:
        return PrivateRows.read(rule.apply(rows), arm, reward, person, arms), [], []
    unit = person or sums.cluster
    log = read_log_rows(rows, arm, reward, person, rule, sums.cluster, sums.per)
    repeated = [] if unit else warn_of_repeated_participants(rows, roles, arm)
    return log, [*describe_table(rows, roles, unit), *log.remarks], [*repeated, *log.warnings]


def _read_arms(
    log: LogRows, arm: str, control: str | None, shares: Mapping[str, float] | None
) -> tuple[ArmNames, NDArray[np.int64]]:
    """Return the arms, the control first, and the index of each row's arm."""
    values = list(log.arms.values)
    if shares and (n_unknown := len(set(values) - set(shares))):
        detail = f"has {n_unknown} arms that shares do not name"
        raise SpecError(detail, field=arm, remedy="name all in shares, or leave their rows out")
    names = ArmNames.from_values(sort_names(shares or values)).with_control(control)
    order = np.array([names.values.index(value) for value in values])
    return names, order[log.chosen]


def _normalize_shares(shares: Mapping[str, float] | None) -> dict[str, float] | None:
    """Return shares divided by their sum, which must be 1 if any share is below 1."""
    if shares is None:
        return None
    if len(shares) < 2:
        raise SpecError("has one option", field="shares", remedy="give the share of each, the control's too")
    total, remedy = sum(shares.values()), "give shares whose sum is 1, or whole numbers such as 1 and 2"
    if not all(0 < share < math.inf for share in shares.values()):
        raise SpecError("must be numbers above 0", field="shares", remedy=remedy)
    if abs(total - 1) > _ROUNDING_TOLERANCE and any(share < 1 for share in shares.values()):
        raise SpecError(f"must have a sum of 1, not {total:.4g}", field="shares", remedy=remedy)
    return {name: share / total for name, share in shares.items()}
