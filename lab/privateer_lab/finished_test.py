"""A test that has been run, row by row, as an experiment of one look: the same statistics, and a curator's noise."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from privateer_core.answer import Answer
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.arms import ArmsSpec
from privateer_lab.covariates import compare_in_words
from privateer_lab.notebook.results import Found
from privateer_lab.notebook.tabular import ResultTable, Tabular
from privateer_lab.one_look import OneLook, RowCount
from privateer_lab.planning.other_algorithms import with_effects
from privateer_lab.segment_columns import PUBLIC, Segments, feature_of, parts_of
from privateer_lab.summed_outcomes import SumColumns
from privateer_lab.tables.arm_counts import split_in_words
from privateer_lab.tables.data_table import SAMPLE, DataTable, TableRows, check_apart, check_named
from privateer_lab.tables.log_rows import ArmNames, LogRows, read_log_rows
from privateer_lab.tables.marks import in_order
from privateer_lab.tables.outcome_rule import OutcomeRule
from privateer_lab.tables.private_rows import PrivateRows
from privateer_lab.tables.remarks import PEOPLE, code_remarks, outcome_remarks, people_warnings, table_remarks
from privateer_lab.tables.rewards import is_yes_or_no, outer_bounds
from privateer_lab.tables.row_outcomes import RowOutcomes

_NOBODY: Final = {"everybody": {"levels": ["everybody"]}}
"""A feature of one level, where no segments are asked for: a spec has one at least."""
_UNIT: Final = (0.0, 1.0)
_ROUNDED: Final = 1e-6
"""What rounding may take from a sum of shares."""
_BY_ROW: Final = "The promise is to each row: who has several has it for each of them, unless --person names people."


@dataclass(frozen=True, repr=False)
class FinishedTest(Tabular):
    """What a test that has been run says: a row for each effect.

    Attributes
    ----------
    spec
        The experiment that it is taken for.
    found
        Effects with intervals and decisions, and what they rest on.
    assumed
        What was taken from the rows, or for granted, in sentences.
    rests
        How many rows, people or clusters it rests on; with a promise as far as its noise tells.
    unadjusted
        The answer without the adjustment; None where nothing adjusts.
    """

    spec: ArmsSpec
    found: Found
    assumed: tuple[str, ...]
    rests: str
    unadjusted: Answer | None = None

    @property
    def answer(self) -> Answer:
        """The answer, as that of an experiment on a server."""
        return self.found.said

    @property
    @override
    def table(self) -> ResultTable:
        return self.found.table

    @property
    @override
    def notes(self) -> Sequence[str]:
        return *self.assumed, *self.found.notes, self.rests


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
    """Return the effects of a randomized test that is over, from its rows.

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
    is_private, parts, shares = epsilon is not None, parts_of(segments), _ratios(shares)
    table = _table(frame, missing, decimal, is_private=is_private)
    sums = SumColumns(per, cluster, adjust)
    roles = [arm, reward, *parts, *sums.adjust, *(one for one in (person, cluster, per) if one)]
    check_named(roles, table.header)
    columns = {"--arm": arm, "--reward": reward, "--person": person, "--cluster": cluster, "--per": per}
    check_apart(columns, parts)
    check_apart(columns, sums.adjust, "--adjust")
    sums.check(person or next(iter(parts), None), is_private=is_private)
    if is_private and not shares:
        detail = "must be given with epsilon: names of arms are public"
        raise SpecError(detail, field="shares", remedy=f"{PUBLIC}, as in old=0.5 and new=0.5")
    rule = OutcomeRule(reward, bounds, yes, missing_as, is_private)
    people = [] if is_private else [name for name in table.header if PEOPLE.search(name) and name not in roles]
    whole = table.read(None if table.rows <= SAMPLE else [*roles, *people])
    log, remarks, warnings = _read(whole, (arm, reward, person), sums, roles, rule, [*(shares or ())])
    names, chosen = _arms(log, arm, control, shares)
    rewards, arms, rows = log.rewards, tuple(names.allowed), log.rows
    is_numeric = rule.is_numeric or person is not None if is_private else not is_yes_or_no(rewards)
    outcomes = RowOutcomes(rewards, outer_bounds(rewards, bounds or _UNIT if is_private else bounds), is_numeric)
    sentences = rule.sentences()
    if is_private and not person:
        sentences.append(_BY_ROW)
    if not is_private:
        sentences += [outcomes.bounds.clipped(rewards, reward)] if is_numeric else []
        sentences += [*remarks, *names.notes(arm), *code_remarks(rows.column(reward)), *outcome_remarks(whole, reward)]
    features = {one: feature_of(rows, one, values, is_private=is_private) for one, values in parts.items()}
    cuts = {one: values for one, values in parts.items() if "levels" not in features[one]}
    tables = {
        "experiment": {"name": "test", "arms": list(arms), "horizon": len(rewards), "round_size": len(rewards)},
        "context": {"features": features or _NOBODY},
        "segments": {"by": list(parts), "cuts": cuts},
        "privacy": {"model": _curator(promises=is_private), **({"epsilon": epsilon} if is_private else {})},
        "algorithm": {"name": with_effects(), "allocation": "fixed", "level": level, **_shares(shares, names)},
    }
    is_counted = log.is_counted if isinstance(log, PrivateRows) else None
    look = OneLook(
        tables, rows, parts, chosen, is_counted, reward, lower_is_better, shares is not None, tuple(warnings)
    )
    units = sums.applied(look, outcomes)
    result, unadjusted = units.look.find(units.outcomes), None
    sentences += units.sentences
    if units.unadjusted:
        unadjusted = units.look.find(units.unadjusted).found.said
        sentences += compare_in_words(unadjusted, result.found.said, sums.adjust)
    if control is None:
        sentences.append(f"Others are compared with {arms[0]}, the first by name: --control names another.")
    if not is_private:
        declared = None if shares is None else dict(zip(arms, _shares(shares, names)["shares"], strict=True))
        # Rows without an outcome were given arms as well; of people and clusters there is one arm each.
        given, counts = whole.column(arm).counts, np.bincount(units.arms, minlength=len(arms))
        if not (person or cluster) and all(name in given for name in arms):
            counts = np.array([given[name] for name in arms])
        mixed = None if units.places is None else (units.arms, units.places)
        sentences.append(split_in_words(counts, arms, declared, mixed))
    unit = "clusters" if cluster else "people" if person else "rows"
    row_count = result.row_count if units.clusters is None else RowCount(units.clusters, 0.0)
    rests = row_count.sentence(unit, len(rewards) if is_private else whole.kept)
    return FinishedTest(result.spec, result.found, (result.direction, *sentences), rests, unadjusted)


def _table(frame: Any, missing: Sequence[str], decimal: str | None, *, is_private: bool) -> DataTable:
    """Open a table, whose rows do not decide its decimal sign with a promise."""
    decimal_sign = "." if is_private and not decimal else decimal
    table = DataTable(frame, missing=missing, decimal=decimal_sign, by_row=is_private)
    if is_private and not decimal and any(source.separator != "," for source in table.sources):
        detail = "must be given with epsilon, since the file is not separated by commas"
        raise SpecError(detail, field="--decimal", remedy="give the decimal sign of its numbers, '.' or ','")
    return table


def _read(
    rows: TableRows,
    named: tuple[str, str, str | None],
    sums: SumColumns,
    roles: Sequence[str],
    rule: OutcomeRule,
    arms: Sequence[str],
) -> tuple[LogRows, list[str], list[str]]:
    """Return rows by arm, reward and person, with remarks and warnings about them."""
    arm, reward, person = named
    if rule.is_private:
        return PrivateRows.read(rule.applied(rows), arm, reward, person, arms), [], []
    unit = person or sums.cluster
    log = read_log_rows(rows, arm, reward, person, rule, sums.cluster, sums.per)
    repeated = [] if unit else people_warnings(rows, roles, arm)
    return log, [*table_remarks(rows, roles, unit), *log.remarks], [*repeated, *log.warnings]


def _arms(
    log: LogRows, arm: str, control: str | None, shares: Mapping[str, float] | None
) -> tuple[ArmNames, NDArray[np.int64]]:
    """Return the arms, the control's first, and the place of each row's among them."""
    values = list(log.arms.values)
    if shares and (n_unknown := len(set(values) - set(shares))):
        detail = f"has {n_unknown} arms that shares do not name"
        raise SpecError(detail, field=arm, remedy="name all in shares, or leave their rows out")
    names = ArmNames.of(in_order(shares or values)).with_control(control)
    order = np.array([names.values.index(value) for value in values])
    return names, order[log.chosen]


def _ratios(shares: Mapping[str, float] | None) -> dict[str, float] | None:
    """Return shares whose sum is 1: of ratios such as 1 and 2, or percentages, each one's part of all."""
    if shares is None:
        return None
    if len(shares) < 2:
        raise SpecError("has one option", field="shares", remedy="give the share of each, the control's too")
    total, remedy = sum(shares.values()), "give shares whose sum is 1, or whole numbers such as 1 and 2"
    if not all(0 < share < math.inf for share in shares.values()):
        raise SpecError("must be numbers above 0", field="shares", remedy=remedy)
    if abs(total - 1) > _ROUNDED and any(share < 1 for share in shares.values()):
        raise SpecError(f"must have a sum of 1, not {total:.4g}", field="shares", remedy=remedy)
    return {name: share / total for name, share in shares.items()}


def _curator(*, promises: bool) -> str:
    """Return the trust model whose server sees the rows, and promises something or nothing."""
    return next(name for name, row in TRUST.items() if row.curated and row.promises == promises)


def _shares(shares: Mapping[str, float] | None, names: ArmNames) -> dict[str, Any]:
    return {"shares": [shares[value] for value in names.values]} if shares else {}
