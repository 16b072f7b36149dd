"""A test that has been run, row by row, as an experiment of one look: the same statistics, and a curator's noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, cast

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc
from typing_extensions import override

from privateer_core.algorithms import parse_spec
from privateer_core.answer import Answer
from privateer_core.answer.estimates import Effect
from privateer_core.errors import SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.privacy.trust import TRUST
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import LEVELS_MAX
from privateer_core.spec.features import Numeric
from privateer_lab.heavy_tails import TestRows, capping_in_words, with_sentences
from privateer_lab.lower_rewards import LowerRewards
from privateer_lab.notebook.results import Found, found_in
from privateer_lab.notebook.tabular import ResultTable, Tabular
from privateer_lab.planning.other_algorithms import with_effects
from privateer_lab.simulation.devices import scaled
from privateer_lab.tables.data_table import SAMPLE, DataTable, TableRows, check_apart, check_named
from privateer_lab.tables.errors import TABLE
from privateer_lab.tables.log_rows import ArmNames, LogRows, first_rows, read_log_rows
from privateer_lab.tables.remarks import code_remarks, table_remarks
from privateer_lab.tables.rewards import HIGHER, RewardBounds, is_yes_or_no, outer_bounds, turned
from privateer_server.conclusions.conclusion import conclude
from privateer_server.rounds.loop import Schedule

_NOBODY: Final = {"everybody": {"levels": ["everybody"]}}
"""A feature of one level, where no segments are asked for: a spec has one at least."""
_LEAST_P: Final = 1e-6
"""Below, a p-value is said to be smaller."""
_SURPRISING: Final = 1e-3
"""A p-value of shares of arms that is no chance."""
_UNREAD: Final = "Rows of no named option, or whose {reward} is no number and no yes or no, count nowhere."
_CLIPPED: Final = "Rewards count from 0 to 1: others as the next of these."
_MISSING: Final = "missing"
_UNIT: Final = (0.0, 1.0)
Array: TypeAlias = NDArray[np.float64]
_PUBLIC: Final = "give those that you know without looking at the rows"
_NO_NOISE: Final = "No privacy is promised to the people of these rows: figures have no noise."
_NOISE: Final = "It costs each person of these rows epsilon {:g} against readers of the answer: noise is in its sums."
Segments: TypeAlias = Mapping[str, Sequence[str] | Sequence[float]]
"""Columns of segments: the values of each that make one, or where a number is cut."""


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
    """

    spec: ArmsSpec
    found: Found
    assumed: tuple[str, ...]

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
        return *self.assumed, *self.found.notes


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
    missing: Sequence[str] = (),
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
        The arm with which the others are compared; by default the first of ``shares``, or the first by name.
    segments
        Columns by which effects are told apart. A mapping also says how: texts are the values of a column, ``"other"``
        among them stands for all that are not listed; numbers are where a segment ends and the next begins. Without,
        each value in the rows is a segment.
    shares
        The share of people that each arm was meant to get; by default the same. How far the rows are from it is tested.
        The first arm is the control unless ``control`` names another.
    bounds
        The least and the largest reward that count: others are clipped to them. By default 0 and 1 or, without
        ``epsilon``, those of the rows, so that effects are differences of means.
    epsilon
        The promise to each person; None: no noise.
    level
        One minus the confidence of the intervals.
    lower_is_better
        Whether less of the reward is better, as of waiting times: effects say how much lower it is.
    person
        The column of people, if some have several rows: each counts once, with the mean of their rewards. Who has rows
        of several arms is left out.
    missing
        Texts that stand for no value, such as ``"999"``, beside the usual ones.
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
    is_private, parts = epsilon is not None, _parts(segments)
    table = DataTable(frame, missing=missing, decimal="." if is_private and not decimal else decimal)
    roles = [arm, reward, *parts, *([person] if person else [])]
    check_named(roles, table.header)
    check_apart({"--arm": arm, "--reward": reward, "--person": person}, parts)
    if is_private and not decimal and any(source.separator != "," for source in table.sources):
        detail = "must be given with epsilon, since the file is not separated by commas"
        raise SpecError(detail, field="--decimal", remedy="give the decimal sign of its numbers, '.' or ','")
    rows = table.read(None if table.rows <= SAMPLE else roles, by_row=is_private)
    remarks, known = list[str](), None
    if is_private:
        log, known = _private_rows(rows, arm, reward, shares, person)
    else:
        remarks = table_remarks(rows, roles, person)
        log = read_log_rows(rows, arm, reward, person)
        remarks += log.remarks
    names, chosen = _arms(log, arm, control, shares)
    rewards, arms, rows = log.rewards, tuple(names.allowed), log.rows
    kind, limits = _kind(rewards, bounds, is_private=is_private), _bounds(rewards, bounds, is_private=is_private)
    said = [_UNREAD.format(reward=reward), *([] if bounds else [_CLIPPED])] if is_private else []
    if not is_private:
        said = [limits.clipped(rewards, reward)] if kind == "numeric" else []
        said += [*remarks, *names.notes(arm), *code_remarks(rows.column(reward))]
    lower = LowerRewards(reward, kind == "binary" and limits[:2] == _UNIT) if lower_is_better else None
    own_bounds = limits.low, limits.high
    if lower:
        rewards, limits = turned(rewards, limits, is_binary=kind == "binary")
    features = {one: _feature(rows, one, values, is_private=is_private) for one, values in parts.items()}
    cuts = {one: values for one, values in parts.items() if "levels" not in features[one]}
    data = {
        "experiment": {"name": "test", "arms": list(arms), "horizon": len(rewards), "round_size": len(rewards)},
        "context": {"features": features or _NOBODY},
        "segments": {"by": list(parts), "cuts": cuts},
        "reward": {"low": limits.low, "high": limits.high, "kind": kind},
        "privacy": {"model": _curator(promises=is_private), **({"epsilon": epsilon} if is_private else {})},
        "algorithm": {"name": with_effects(), "allocation": "fixed", "level": level, **_shares(shares, names)},
    }
    spec = _parsed(data)
    contexts = _contexts(rows, spec, parts, is_private=is_private)
    found = _found(spec, contexts, chosen, spec.reward.scaled_all(rewards), known, lower)
    if not is_private:

        def capped(least: float, most: float) -> tuple[Effect, ...]:
            other = _parsed(data | {"reward": {"low": least, "high": most, "kind": kind}})
            return _found(other, contexts, chosen, other.reward.scaled_all(rewards), None, lower).said.effects

        test_rows, ends = TestRows(rewards, chosen, arms, reward, -1 if lower else 1), (limits.low, limits.high)
        found = with_sentences(found, tuple(capping_in_words(test_rows, found.said.effects, ends, capped)))
    better = lower.sentence(found) if lower else HIGHER
    meant = None if shares is None else dict(zip(arms, _shares(shares, names)["shares"], strict=True))
    given = () if is_private else (_shares_told(np.bincount(chosen, minlength=len(arms)), arms, meant),)
    shown = lower.without_means(found, spec, own_bounds) if lower else found
    return FinishedTest(spec, shown, (better, *said, *given))


def _shares_told(counts: NDArray[np.int64], arms: tuple[str, ...], shares: Mapping[str, float] | None) -> str:
    """Say how people were split among arms, and whether chance explains how far that is from what was meant.

    Parameters
    ----------
    counts
        Shape (arms,): people of each.
    """
    people = int(counts.sum())
    meant = np.array([shares[one] for one in arms]) if shares else np.full(len(arms), 1 / len(arms))
    expected = people * meant / meant.sum()
    p_value = float(chdtrc(len(arms) - 1, float((np.square(counts - expected) / expected).sum())))
    got = ", ".join(f"{arm} {count / people:.1%}" for arm, count in zip(arms, counts.tolist(), strict=True))
    chance = f"p {'below 1e-6' if p_value < _LEAST_P else f'{p_value:.2g}'}"
    intended = "as given" if shares else "the same for all"
    if p_value >= _SURPRISING:
        return f"People were split as meant, {intended}, but for chance ({chance}): {got}."
    if shares:
        remedy = "People are missing, or counted twice: find out why before you believe an effect"
    else:
        remedy = "Give the shares that were meant; if all were meant to be the same, find out who is missing"
    return f"People were not split as meant, {intended} ({chance}): {got}. {remedy}."


def _parsed(data: dict[str, Any]) -> ArmsSpec:
    """Read the experiment that the rows would have been; a first look that is too small is too few rows."""
    try:
        return cast(ArmsSpec, parse_spec(data))
    except SpecError as error:
        if error.field != "experiment.round_size":
            raise
        detail = f"has {data['experiment']['horizon']:,} rows, too few for so many segments and arms: 20 of each"
        raise SpecError(detail, field=TABLE, remedy="name fewer segments, or leave rare arms out") from None


def _parts(segments: Segments | Sequence[str]) -> dict[str, list[str] | list[float]]:
    """Return the columns of segments, with their values or cuts as far as they are given."""
    if isinstance(segments, str):
        remedy = f"write segments=[{segments!r}]"
        raise SpecError("must be a list of names of columns", field="segments", remedy=remedy)
    given = segments if isinstance(segments, Mapping) else dict.fromkeys(segments, ())
    return {name: cast("list[str] | list[float]", list(values)) for name, values in given.items()}


def _private_rows(
    rows: TableRows, arm: str, reward: str, shares: Mapping[str, float] | None, person: str | None
) -> tuple[LogRows, NDArray[np.bool_]]:
    """Return all rows, or all people, and which of them have a known arm and a reward, (n,): others count nowhere.

    Each row is read by itself, and none is refused: an error would tell of it.
    """
    if not shares:
        detail = "must be given with epsilon: names of arms are public"
        raise SpecError(detail, field="shares", remedy=f"{_PUBLIC}, as in old=0.5 and new=0.5")
    places = {name: place for place, name in enumerate(shares)}
    each = np.array([*(places.get(text, -1) for text in rows.column(arm).values), -1], np.int64)
    chosen, rewards = each[rows.column(arm).places], rows.column(reward).outcomes
    known = (chosen >= 0) & np.isfinite(rewards)
    rewards = np.where(known, rewards, 0.0)
    if person:
        first, of, counts = first_rows(rows.column(person))
        n_known = np.bincount(of, known)
        rewards = np.bincount(of, rewards) / np.maximum(n_known, 1)
        known = (n_known > 0) & (np.bincount(of, chosen != chosen[first][of]) == 0)
        is_somebody = counts > 0
        rows, chosen = rows.of(first[is_somebody]), chosen[first][is_somebody]
        rewards, known = rewards[is_somebody], known[is_somebody]
    return LogRows(rows, ArmNames.of([*shares]), np.maximum(chosen, 0), rewards, ()), known


def _arms(
    log: LogRows, arm: str, control: str | None, shares: Mapping[str, float] | None
) -> tuple[ArmNames, NDArray[np.int64]]:
    """Return the arms, the control's first, and the place of each row's among them."""
    values = list(log.arms.values)
    if shares and len(shares) < 2:
        raise SpecError("has one option", field="shares", remedy="give the share of each, the control's too")
    if shares and (n_unknown := len(set(values) - set(shares))):
        detail = f"has {n_unknown} arms that shares do not name"
        raise SpecError(detail, field=arm, remedy="name all in shares, or leave their rows out")
    names = ArmNames.of([*shares] if shares else values).with_control(control)
    order = np.array([names.values.index(value) for value in values])
    return names, order[log.chosen]


def _kind(rewards: Array, bounds: tuple[float, float] | None, *, is_private: bool) -> str:
    """Return what rewards are; with a promise who gives bounds says that they are numbers, and not the rows."""
    is_numeric = bounds is not None if is_private else not is_yes_or_no(rewards)
    return "numeric" if is_numeric else "binary"


def _curator(*, promises: bool) -> str:
    """Return the trust model whose server sees the rows, and promises something or nothing."""
    return next(name for name, row in TRUST.items() if row.curated and row.promises == promises)


def _shares(shares: Mapping[str, float] | None, names: ArmNames) -> dict[str, Any]:
    return {"shares": [shares[value] for value in names.values]} if shares else {}


def _bounds(rewards: Array, given: tuple[float, float] | None, *, is_private: bool) -> RewardBounds:
    """Return the bounds of rewards: with a promise the rows do not decide them."""
    return outer_bounds(rewards, given or _UNIT if is_private else given)


def _feature(rows: TableRows, name: str, given: list[str] | list[float], *, is_private: bool) -> dict[str, Any]:
    """Return the feature of a spec that a column of segments is."""
    column = rows.column(name)
    if given and not any(isinstance(one, str) for one in given):
        # What is beyond the cuts counts as the next bound, in the same segment.
        gaps = {"missing": True} if column.gaps and not is_private else {}
        return {"low": min(map(float, given)) - 1, "high": max(map(float, given)) + 1, **gaps}
    if given:
        return {"levels": given}
    if is_private:
        raise SpecError("needs values or cuts with epsilon: segments are public", field=name, remedy=_PUBLIC)
    levels = sorted(column.counts) + ([_MISSING] if column.gaps else [])
    if len(levels) > LEVELS_MAX:
        detail = f"has {len(levels):,} values, and at most {LEVELS_MAX} make segments"
        raise SpecError(detail, field=name, remedy="give its cuts if it is a number, or leave it out")
    return {"levels": levels}


def _contexts(
    rows: TableRows, spec: ArmsSpec, parts: Mapping[str, list[str] | list[float]], *, is_private: bool
) -> Array:
    """Return the columns of segments as devices encode them, (n, columns).

    A gap is the level `_MISSING`. With a promise each row is read by itself: a number that is none is below all cuts.
    """
    values = []
    for name in parts:
        column, feature = rows.column(name), spec.features[name]
        if isinstance(feature, Numeric):
            numbers = np.append(column.quantities, np.nan)[column.places]
            below = np.where(np.isfinite(numbers), numbers, feature.low)
            values.append(below if is_private else column.read_as(feature))
        else:
            gap = feature.read(name, _MISSING)
            each = np.array([*(feature.read(name, text) for text in column.values), gap])
            values.append(each[column.places])
    return scaled(np.stack(values, axis=1), spec) if values else np.zeros((rows.kept, 0 if parts else 1))


def _found(
    spec: ArmsSpec,
    contexts: Array,
    chosen: NDArray[np.int64],
    rewards: Array,
    known: NDArray[np.bool_] | None,
    lower: LowerRewards | None,
) -> Found:
    """Return what one look at all rows says; contexts (n, columns) and rewards (n,) are scaled.

    With a promise, rows that are not ``known``, (n,), have nothing to contribute; without one it is None.
    """
    step = (schedule := Schedule(spec)).open(0)
    policy: Any = step.policy
    given = policy.contribute(contexts, np.zeros(len(chosen), np.uint32), Arms(chosen), rewards)
    mechanism: Any = policy.terms.mechanism
    if known is None:
        release = mechanism.moments(given)
    else:
        given, noise = replace(given, keys=np.where(known, given.keys, -1)), SecureNoise()
        release = mechanism.release(mechanism.add(mechanism.empty(), mechanism.randomize(given, noise)), noise)
    over = schedule.close(step, release, 0)
    answer = msgspec.structs.replace(schedule.answer(over), ended="its rows")
    answer = lower.renamed(answer, spec) if lower else answer
    conclusion = conclude(schedule, over, answer)
    said = _NO_NOISE if known is None else _NOISE.format(spec.privacy.bound)
    cost = msgspec.structs.replace(conclusion.privacy, sentence=said)
    return found_in("test", answer, msgspec.structs.replace(conclusion, privacy=cost))
