"""A test that has been run, row by row, as an experiment of one look: the same statistics, and a curator's noise."""

import math
import re
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
from privateer_core.errors import InputError, SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.privacy.trust import TRUST
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.spec.arms import ARM_NAME, ArmsSpec
from privateer_core.spec.categories import LEVELS_MAX
from privateer_core.spec.columns import is_missing
from privateer_lab.heavy_tails import TestRows, capping_in_words, with_sentences
from privateer_lab.lower_rewards import LowerRewards
from privateer_lab.notebook.data_frames import Array, Columns, column, columns_of, contexts_of, numbered, numbers, texts
from privateer_lab.notebook.results import Found, found_in
from privateer_lab.notebook.tabular import ResultTable, Tabular
from privateer_lab.planning.other_algorithms import with_effects
from privateer_lab.simulation.devices import scaled
from privateer_server.conclusions.conclusion import conclude
from privateer_server.rounds.loop import Schedule

_NOBODY: Final = {"everybody": {"levels": ["everybody"]}}
"""A feature of one level, where no segments are asked for: a spec has one at least."""
_HIGHER: Final = "A higher reward counts as better: say so if a lower one is."
_LEAST_P: Final = 1e-6
"""Below, a p-value is said to be smaller."""
_SURPRISING: Final = 1e-3
"""A p-value of shares of arms that is no chance."""
_CLIPPED: Final = "Rewards count from 0 to 1: others as the next of these."
_MISSING: Final = "missing"
_UNIT: Final = (0.0, 1.0)
_PUBLIC: Final = "give those that you know without looking at the rows"
_NO_NOISE: Final = "Nothing is promised to the people of these rows: no noise is added."
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
) -> FinishedTest:
    """Return the effects of a randomized test that is over, from its rows.

    Privacy: without ``epsilon`` nothing is private, and the answer is for those who may read the rows. With it every
    sum that the answer rests on has a curator's noise, and the answer as a whole is epsilon-private, should any row be
    another. The number of rows, arms, segments and bounds are public: you give them, and none is taken from the rows.
    No row is refused then: of one that cannot be read, what cannot counts as the lowest reward or another segment, and
    a row of an unknown arm nowhere. Errors are for those who may read the rows: of a file that is no table, say.

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
        ``epsilon``, those of the rows.
    epsilon
        The promise to each person; None: no noise.
    level
        One minus the confidence of the intervals.
    lower_is_better
        Whether less of the reward is better, as of waiting times: effects say how much lower it is.

    Raises
    ------
    InputError
        Naming a column, its constraint and the remedy.
    SpecError
        Naming an argument, its constraint and the remedy.

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
    columns, known = columns_of(frame, as_text=is_private), None
    columns |= {name: _filled(column(columns, name)) for name, values in parts.items() if not values}
    if is_private:
        if not shares:
            detail = "must be given with epsilon: names of arms are public"
            raise SpecError(detail, field="shares", remedy=f"{_PUBLIC}, as in old=0.5 and new=0.5")
        columns, known = _readable(columns, arm, reward, parts, shares, bounds)
    rewards, arms = numbers(columns, reward), _arms(columns, arm, control, shares)
    low, high, said = (*_UNIT, (_CLIPPED,)) if is_private and not bounds else _bounds(rewards, bounds, reward)
    clipped = 0 if is_private else int(((rewards < low) | (rewards > high)).sum())
    kind = _kind(rewards, bounds, is_private=is_private)
    lower = LowerRewards(reward, kind == "binary" and (low, high) == _UNIT) if lower_is_better else None
    own_bounds = low, high
    if lower:
        rewards, low, high = lower.turned(rewards, low, high)
    features = {one: _feature(columns, one, values, is_private=is_private) for one, values in parts.items()}
    cuts = {one: values for one, values in parts.items() if "levels" not in features[one]}
    data = {
        "experiment": {"name": "test", "arms": list(arms), "horizon": len(rewards), "round_size": len(rewards)},
        "context": {"features": features or _NOBODY},
        "segments": {"by": list(parts), "cuts": cuts},
        "reward": {"low": low, "high": high, "kind": kind},
        "privacy": {"model": _curator(promises=is_private), **({"epsilon": epsilon} if is_private else {})},
        "algorithm": {"name": with_effects(), "allocation": "fixed", "level": level, **_shares(shares, arms)},
    }
    spec = _parsed(data)
    chosen = numbered(columns, arm, arms)
    contexts = scaled(contexts_of(columns, spec), spec) if parts else np.zeros((len(rewards), 1))
    found = _found(spec, contexts, chosen, spec.reward.scaled_all(rewards), known, lower)
    if not is_private:

        def capped(least: float, most: float) -> tuple[Effect, ...]:
            other = _parsed(data | {"reward": {"low": least, "high": most, "kind": kind}})
            return _found(other, contexts, chosen, other.reward.scaled_all(rewards), None, lower).said.effects

        rows = TestRows(rewards, chosen, arms, reward, -1 if lower else 1)
        found = with_sentences(found, tuple(capping_in_words(rows, found.said.effects, (low, high), capped)))
    if clipped:
        said = (*said, f"{clipped:,} of {len(rewards):,} rewards are beyond the bounds, and count as the next bound.")
    better = lower.sentence(found) if lower else _HIGHER
    given = () if is_private else (_shares_told(np.bincount(chosen, minlength=len(arms)), arms, shares),)
    shown = lower.without_means(found, spec, own_bounds) if lower else found
    return FinishedTest(spec, shown, (better, *said, *given))


def _shares_told(counts: NDArray[np.int64], arms: tuple[str, ...], shares: Mapping[str, float] | None) -> str:
    """Say what share of people each arm got, and whether chance explains how far that is from what was meant.

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
        return f"Shares of people by option ({got}) are what chance makes of those meant, {intended} ({chance})."
    if shares:
        remedy = "people are missing, or counted twice: find out why before you believe an effect"
    else:
        remedy = "give those that were meant; if all were meant to be the same, find out who is missing"
    return (
        f"Shares of people by option ({got}) are not what chance makes of those meant, {intended} ({chance}): {remedy}."
    )


def _parsed(data: dict[str, Any]) -> ArmsSpec:
    """Read the experiment that the rows would have been; a first look that is too small is too few rows."""
    try:
        return cast(ArmsSpec, parse_spec(data))
    except SpecError as error:
        if error.field != "experiment.round_size":
            raise
        detail = f"has {data['experiment']['horizon']:,} rows, too few for so many segments and arms: 20 of each"
        raise InputError(detail, field="frame", remedy="name fewer segments, or leave rare arms out") from None


def _parts(segments: Segments | Sequence[str]) -> dict[str, list[str] | list[float]]:
    """Return the columns of segments, with their values or cuts as far as they are given."""
    if isinstance(segments, str):
        remedy = f"write segments=[{segments!r}]"
        raise SpecError("must be a list of names of columns", field="segments", remedy=remedy)
    given = segments if isinstance(segments, Mapping) else dict.fromkeys(segments, ())
    return {name: cast("list[str] | list[float]", list(values)) for name, values in given.items()}


def _readable(
    columns: Columns,
    arm: str,
    reward: str,
    parts: Mapping[str, list[str] | list[float]],
    shares: Mapping[str, float],
    bounds: tuple[float, float] | None,
) -> tuple[Columns, NDArray[np.bool_]]:
    """Return columns that can be read in every row, and which rows have a known arm, (n,): the others count nowhere.

    Each row is read by itself, and none is refused: an error would tell of it. A reward that is no number counts as the
    lowest, a number that is none as below all cuts, and another value than those given as ``"other"``.
    """
    arms = [_text(one) for one in column(columns, arm).tolist()]
    found: Columns = {
        arm: np.array([one if one in shares else next(iter(shares)) for one in arms], dtype=object),
        reward: _numbers(column(columns, reward), (bounds or _UNIT)[0]),
    }
    for name, given in parts.items():
        listed = any(isinstance(one, str) for one in given)
        values = column(columns, name)
        texts_of = np.array([_text(one) for one in values.tolist()], dtype=object)
        found[name] = texts_of if listed or not given else _numbers(values, min(map(float, given)) - 1)
    return columns | found, np.array([one in shares for one in arms])


def _text(value: Any) -> str:
    if is_missing(value):
        return _MISSING
    is_whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if is_whole else str(value)


def _numbers(values: NDArray[Any], otherwise: float) -> Array:
    """Return numbers, one where there is none."""

    def read(value: Any) -> float:
        try:
            return float(value)
        except (TypeError, ValueError):
            return math.nan

    found = np.array([read(one) for one in values.tolist()])
    return np.where(np.isfinite(found), found, otherwise)


def _arms(columns: Columns, arm: str, control: str | None, shares: Mapping[str, float] | None) -> tuple[str, ...]:
    """Return the names of the arms, the control's first."""
    names = list(shares) if shares else sorted(set(texts(columns, arm)))
    if shares and len(names) < 2:
        raise SpecError("has one option", field="shares", remedy="give the share of each, the control's too")
    if len(names) < 2:
        raise InputError("has one arm", field=arm, remedy="give the rows of at least two")
    if wrong := [name for name in names if not re.fullmatch(ARM_NAME, name)]:
        detail = f"has {len(wrong)} names of arms with other signs than letters, digits, blanks, .+-_%()!?, or over 64"
        raise InputError(detail, field=arm, remedy="write them otherwise in the rows")
    if control is not None and control not in names:
        raise SpecError("is not among the arms", field="control", remedy=f"name one of {', '.join(names)}")
    first = names[0] if control is None else control
    return (first, *(name for name in names if name != first))


def _kind(rewards: Array, bounds: tuple[float, float] | None, *, is_private: bool) -> str:
    """Return what rewards are; with a promise who gives bounds says that they are numbers, and not the rows."""
    is_numeric = bounds is not None if is_private else bool(np.setdiff1d(rewards, _UNIT).size)
    return "numeric" if is_numeric else "binary"


def _curator(*, promises: bool) -> str:
    """Return the trust model whose server sees the rows, and promises something or nothing."""
    return next(name for name, row in TRUST.items() if row.curated and row.promises == promises)


def _shares(shares: Mapping[str, float] | None, arms: tuple[str, ...]) -> dict[str, Any]:
    return {"shares": [shares[one] for one in arms]} if shares else {}


def _bounds(rewards: Array, given: tuple[float, float] | None, name: str) -> tuple[float, float, tuple[str, ...]]:
    """Return the bounds of rewards, and what is to be said of them."""
    if given is not None:
        return *given, ()
    low, high = float(rewards.min()), float(rewards.max())
    if _UNIT[0] <= low and high <= _UNIT[1]:
        return *_UNIT, ()
    if low == high:
        raise InputError("has one value in all rows", field=name, remedy="name the column of what came of the arm")
    return low, high, (f"The least and the largest reward of the rows, {low:g} and {high:g}, are taken as bounds.",)


def _feature(columns: Columns, name: str, given: list[str] | list[float], *, is_private: bool) -> dict[str, Any]:
    """Return the feature of a spec that a column of segments is."""
    if given and not any(isinstance(one, str) for one in given):
        # What is beyond the cuts counts as the next bound, in the same segment.
        return {"low": min(map(float, given)) - 1, "high": max(map(float, given)) + 1}
    if given:
        return {"levels": given}
    if is_private:
        raise SpecError("needs values or cuts with epsilon: segments are public", field=name, remedy=_PUBLIC)
    found = sorted(set(columns[name].tolist()), key=str)
    if len(found) > LEVELS_MAX:
        detail = f"has {len(found):,} values, and at most {LEVELS_MAX} make segments"
        raise InputError(detail, field=name, remedy="give its cuts if it is a number, or leave it out")
    return {"levels": found}


def _filled(values: NDArray[Any]) -> NDArray[Any]:
    """Return values as a level each: whole numbers as such, and a gap as a level of its own."""
    known = [_MISSING if is_missing(one) else one for one in values.tolist()]
    whole = [int(one) if isinstance(one, float | bool) and float(one).is_integer() else one for one in known]
    return np.array(whole, dtype=object)


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
