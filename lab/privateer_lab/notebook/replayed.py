"""A learner on logged data: it learns from those rows alone whose arm it would have chosen (Li et al., WSDM 2011)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from privateer_core.errors import InputError, SpecError
from privateer_core.policies.decisions import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment, PlayedRewards
from privateer_lab.notebook.choice_log import ChoiceLog, read_log
from privateer_lab.notebook.estimates import RewardSample, Value
from privateer_lab.notebook.policies import Array, LoadedPolicy
from privateer_lab.notebook.results import Found, found_in
from privateer_lab.notebook.specs import SpecLike
from privateer_lab.notebook.specs import spec as read
from privateer_lab.notebook.tabular import ResultTable, Tabular, table_of
from privateer_lab.simulation.devices import scaled
from privateer_lab.simulation.simulation import Simulation, drawn_coins
from privateer_lab.tables import TABLE
from privateer_lab.tables.data_table import DataTable
from privateer_server.conclusions.conclusion import conclude

FALSE_ALARM: Final = 1e-6
"""The probability that a log of arms at random is refused."""
_QUARTERS: Final = (0.25, 0.5, 0.75)
_LEVELS: Final = 10
_DUST: Final = 1e-6


@dataclass(frozen=True, repr=False)
class Replayed(Tabular):
    """The rounds of a learner that replayed a log: a row for each.

    Attributes
    ----------
    spec
        The experiment's.
    policy
        The last policy.
    found
        What the learner found; None if its algorithm reports nothing.
    reward
        Mean reward of the people whose arm the learner would have chosen, while it learned, with a 95 % interval.
    logged
        Mean reward of all rows: of arms at random.
    people, rows_used
        People who counted, and rows that were looked at for them.
    rounds
        A row each: people who counted, and their mean reward.
    warnings
        What ended the replay early.
    """

    spec: Spec
    policy: LoadedPolicy
    found: Found | None
    reward: Value
    logged: Value
    people: int
    rows_used: int
    rounds: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...] = ()

    @cached_property
    def table(self) -> ResultTable:
        """A row for each round."""
        return table_of(f"{self.spec.name}: replayed", self.rounds)

    @property
    def notes(self) -> Sequence[str]:
        """Mean rewards, and warnings."""
        one, all_of = self.reward, self.logged
        said = (
            f"The learner earned {one.value:.4g} ({one.low:.4g} to {one.high:.4g}), arms at random {all_of.value:.4g}."
        )
        return said, *(f"Warning: {one}" for one in self.warnings)


def replay(
    frame: Any,
    spec: SpecLike,
    *,
    action: str = "arm",
    reward: str = "reward",
    propensity: str | None = None,
    users: int | None = None,
    seed: int = 0,
) -> Replayed:
    """Run an experiment's learner on logged data, in which arms were chosen uniformly at random.

    Policies, mechanisms and learner are those of the simulator, so that the noise of privacy is in the result. A row
    counts if the policy chooses its arm; others are passed over, so of K arms about one row in K counts. The people who
    count are as if the policy had chosen for them (Li, Chu, Langford and Wang 2011).

    Parameters
    ----------
    frame
        As `evaluate` takes it; its rows are people in the order in which they came.
    spec
        What `spec` takes. Its features are columns of the frame, its arms the arms; ``[population]`` is not needed.
    action, reward
        Columns of the arm, and of what came of it in the reward's own units.
    propensity
        The column of propensities, if there is one, to check that they are those of arms at random.
    users
        The number of people who count, as the experiment's horizon; the spec's by default.
    seed
        Draws coins and noise.

    Raises
    ------
    InputError
        If arms were not chosen at random, or rows are too few.
    SpecError
        Naming a column, its constraint and the remedy; or if the experiment is one that nobody replays.

    Examples
    --------
    >>> import numpy as np
    >>> import privateer_lab as lab
    >>> rng = np.random.default_rng(0)
    >>> log = {"x1": rng.random(9000), "x2": rng.random(9000), "arm": rng.choice(["left", "middle", "right"], 9000)}
    >>> log["reward"] = (rng.random(9000) < (log["arm"] == "left") / 2).astype(float)
    >>> made = lab.replay(log, "examples/peaks-local.toml", users=2000)
    >>> made.people, made.rows_used < 9000
    (2000, True)
    """
    parsed = _replayable(read(spec, users=users))
    table, columns = DataTable(frame), {"action": action, "reward": reward}
    log = read_log(table, context=(), propensity=propensity or 1.0, arms=parsed.options, **columns)
    raw = log.contexts(parsed)
    _check_uniform(log, raw, action, propensity)
    run = _Replay(parsed, seed, np.column_stack([raw, log.chosen, log.rewards]))
    run.play_all()
    if not run.closed:
        detail = f"has too few rows: the first round of {run.step.batch:,} people was not filled"
        raise InputError(detail, field=TABLE, remedy="log more, or lower experiment.round_size")
    return _replayed(parsed, run, log)


def _replayable(spec: Spec) -> ArmsSpec:
    if not isinstance(spec, ArmsSpec):
        detail = "must be of an algorithm that chooses an arm for each person"
        raise SpecError(detail, field="algorithm.name", remedy="choose another, or simulate")
    for wrong, field in ((bool(spec.sources), "sources"), (spec.reports > 1, "experiment.reports_per_person")):
        if wrong:
            raise SpecError("nobody replays it", field=field, remedy="remove it")
    return spec


class _Ended(Exception):
    """The log has no more rows."""


class _Logged(Environment):
    """Rows of a log: features, the arm, the reward. What another arm would have brought nobody knows."""

    def contexts(self, _seen: int, people: int, _rng: np.random.Generator) -> Array:
        """Return nobody: `_Replay` takes the rows itself."""
        raise NotImplementedError

    def means(self, contexts: Array) -> Array:
        """Return what nobody knows."""
        raise NotImplementedError

    def rewards(self, contexts: Array, _decisions: Any, _rng: np.random.Generator) -> Array:
        """Return the rewards of the rows."""
        return np.asarray(contexts[:, -1])

    def play(self, _decisions: Any, contexts: Array) -> PlayedRewards:
        """Return what the rows brought."""
        return PlayedRewards(len(contexts), float(contexts[:, -1].sum()), np.nan, np.full(1, np.nan))


class _Replay(Simulation):
    """A simulation whose people are the rows of a log whose arm the policy chooses."""

    def __init__(self, spec: Spec, seed: int, rows: Array) -> None:
        super().__init__(spec, seed, one_by_one=True, environment=_Logged())
        self.judgement = None  # nobody knows the truth
        self._rows, self.used = rows, 0
        self.rewards: list[Array] = []
        self.closed: list[dict[str, Any]] = []
        self.has_ended = False

    def play_all(self) -> None:
        """Play rounds until the experiment is over or the log has no more rows."""
        while self.step.batch:
            before, start = len(self.rewards), self.used
            try:
                self.close_round()
            except _Ended:
                del self.rewards[before:]
                self.used, self.has_ended = start, True
                return
            rewards = np.concatenate(self.rewards[before:])
            row = {"round": len(self.closed) + 1, "people": len(rewards)}
            self.closed.append({**row, "rows": self.used - start, "reward": float(rewards.mean())})

    def play(self, policy: Any, people: int, rng: np.random.Generator, _seen: int = 0) -> Any:
        """Have the next rows take part whose arm the policy chooses."""
        rows, coins, arms = self._accepted(policy, people, rng)
        self.rewards.append(rows[:, -1])
        return self.rewarded(policy, rows, coins, Arms(arms), rng)

    def _accepted(
        self, policy: Any, people: int, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.uint32], NDArray[np.int64]]:
        """Return rows, coins and arms of so many people who count."""
        kept, left = [], people
        while left:
            rows = self._rows[self.used : self.used + max(64, len(self.spec.options) * left)]
            if not len(rows):
                raise _Ended
            coins = drawn_coins(rng, len(rows))
            arms = policy.decide(scaled(rows, self.spec), coins).arms
            same = np.flatnonzero(arms == rows[:, -2])[:left]
            kept.append((rows[same], coins[same], arms[same]))
            left -= len(same)
            self.used += len(rows) if left else int(same[-1]) + 1
        rows, coins, arms = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        return rows, coins, arms


def _replayed(spec: ArmsSpec, run: _Replay, log: ChoiceLog) -> Replayed:
    answer, people = run.schedule.answer(run.step), sum(one["people"] for one in run.closed)
    planned = spec.experiment.horizon
    short = f"the log ended after {people:,} of {planned:,} people who count: set users={people}, or log more"
    return Replayed(
        spec,
        LoadedPolicy(spec, run.step.policy),
        found_in(spec.name, answer, conclude(run.schedule, run.step, answer)) if answer.says_something else None,
        _mean_of("replayed", np.concatenate(run.rewards)),
        _mean_of("the log", log.rewards),
        people,
        run.used,
        tuple(run.closed),
        (*log.remarks, *((short,) if run.has_ended else ())),
    )


def _mean_of(name: str, rewards: Array) -> Value:
    rows = np.arange(len(rewards))
    return RewardSample(rewards, rows, None, 0.95).mean(name, np.ones(len(rewards)))


def _check_uniform(log: ChoiceLog, raw: Array, action: str, propensity: str | None) -> None:
    """Refuse a log whose arms were not chosen uniformly at random, no matter who came.

    Arms are counted, all together and in parts of people by each feature, and all the counts are tested with a
    probability of `FALSE_ALARM` to refuse a log that is fine.
    """
    arms, remedy = len(log.arms), "use lab.evaluate, which takes any propensities"
    if propensity is not None and (np.abs(log.propensities * arms - 1) > _DUST).any():
        detail = f"must be 1 / {arms} in every row: replay needs arms that were chosen uniformly at random"
        raise InputError(detail, field=propensity, remedy=remedy)
    limit = FALSE_ALARM / (1 + raw.shape[1])
    for part in (np.zeros(len(log), np.int64), *(_parts(values) for values in raw.T)):
        counts = np.zeros((int(part.max()) + 1, arms))
        np.add.at(counts, (part, log.chosen), 1)
        expected = counts.sum(axis=1, keepdims=True) / arms
        counts, expected = counts[expected[:, 0] >= 5], expected[expected[:, 0] >= 5]
        if (
            counts.size
            and chdtrc(counts.shape[0] * (arms - 1), float((np.square(counts - expected) / expected).sum())) < limit
        ):
            detail = "has arms that were not chosen uniformly at random: some are too frequent for some people"
            raise InputError(detail, field=action, remedy=remedy)


def _parts(values: Array) -> NDArray[np.int64]:
    """Part people by a feature: by its values if there are few, else by quarters."""
    known = np.where(np.isnan(values), np.inf, values)
    found, places = np.unique(known, return_inverse=True)
    if len(found) <= _LEVELS:
        return np.asarray(places, np.int64)
    return np.searchsorted(np.quantile(known[np.isfinite(known)], _QUARTERS), known).astype(np.int64)
