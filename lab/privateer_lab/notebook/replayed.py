"""Replay of a learner on a log: it learns only from rows whose arm its policy chooses (Li et al., WSDM 2011)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from privateer_core.errors import InputError, SpecError
from privateer_core.policies.policy import Arms
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_lab.environments import Environment, PlayedRewards
from privateer_lab.notebook.choice_log import ChoiceLog, read_log
from privateer_lab.notebook.estimates import RewardSample, Value
from privateer_lab.notebook.policies import Array, LoadedPolicy
from privateer_lab.notebook.results import ExperimentResult, build_result
from privateer_lab.notebook.specs import SpecLike
from privateer_lab.notebook.specs import spec as read_spec
from privateer_lab.notebook.tabular import ResultTable, Tabular, build_table
from privateer_lab.simulation.scores import encode_contexts
from privateer_lab.simulation.simulation import Simulation, draw_coins
from privateer_lab.tables import TABLE_FIELD
from privateer_lab.tables.data_table import DataTable
from privateer_server.conclusions.conclusion import conclude

FALSE_ALARM_PROBABILITY: Final = 1e-6
"""The probability that a log with arms at random is refused."""
_QUARTILE_LEVELS: Final = (0.25, 0.5, 0.75)
_MAX_LEVELS: Final = 10
_PROPENSITY_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, repr=False)
class Replayed(Tabular):
    """The rounds of a learner that replayed a log: a row for each.

    Attributes
    ----------
    spec
        The experiment's spec.
    policy
        The last policy.
    result
        The learner's result; None if its algorithm reports nothing.
    reward
        Mean reward of the accepted rows, whose arm the policy chose, with a 95 % confidence interval.
    logged
        Mean reward of all rows: of arms at random.
    people, rows_used
        Numbers of accepted rows, each a participant, and of all rows read for them.
    rounds
        A row each: the number of accepted rows, and their mean reward.
    warnings
        Sentences about rows left out and a log that ended early.
    """

    spec: Spec
    policy: LoadedPolicy
    result: ExperimentResult | None
    reward: Value
    logged: Value
    people: int
    rows_used: int
    rounds: tuple[dict[str, Any], ...]
    warnings: tuple[str, ...] = ()

    @cached_property
    def table(self) -> ResultTable:
        """A row for each round."""
        return build_table(f"{self.spec.name}: replayed", self.rounds)

    @property
    def notes(self) -> Sequence[str]:
        """Mean rewards, and warnings."""
        interval = f"{self.reward.low:.4g} to {self.reward.high:.4g}"
        earned = f"The learner earned {self.reward.value:.4g} ({interval}), arms at random {self.logged.value:.4g}."
        return earned, *(f"Warning: {warning}" for warning in self.warnings)


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
    counts if the policy chooses its arm, so with K arms about one row in K counts. The accepted rows are distributed
    as if the policy had chosen their arms (Li, Chu, Langford and Wang 2011).

    Parameters
    ----------
    frame
        As `evaluate` takes it; its rows are participants in the order of their arrival.
    spec
        A source that `spec` takes. Its features are columns of the frame; ``[population]`` is not needed.
    action, reward
        Columns of the arm, and of the reward in its own units.
    propensity
        The column of propensities, if there is one, to check that they are those of arms at random.
    users
        The number of participants, as the experiment's horizon; the spec's by default.
    seed
        The seed of coins and noise.

    Raises
    ------
    InputError
        If arms were not chosen at random, or rows are too few.
    SpecError
        Naming a column, its constraint and the remedy; or if the experiment cannot be replayed.

    Examples
    --------
    >>> import numpy as np
    >>> import privateer_lab as lab
    >>> rng = np.random.default_rng(0)
    >>> log = {"x1": rng.random(9000), "x2": rng.random(9000), "arm": rng.choice(["left", "middle", "right"], 9000)}
    >>> log["reward"] = (rng.random(9000) < (log["arm"] == "left") / 2).astype(float)
    >>> replayed = lab.replay(log, "examples/peaks-local.toml", users=2000)
    >>> replayed.people, replayed.rows_used < 9000
    (2000, True)
    """
    parsed = _check_replayable(read_spec(spec, users=users))
    table, columns = DataTable(frame), {"action": action, "reward": reward}
    log = read_log(table, context=(), propensity=propensity or 1.0, arms=parsed.options, **columns)
    contexts = log.contexts(parsed)
    _check_uniform(log, contexts, action, propensity)
    run = _ReplaySimulation(parsed, seed, np.column_stack([contexts, log.arm_indices, log.rewards]))
    run.play_all()
    if not run.closed_rounds:
        detail = f"has too few rows: the first round of {run.step.batch_size:,} people was not filled"
        raise InputError(detail, field=TABLE_FIELD, remedy="log more, or lower experiment.round_size")
    return _build_result(parsed, run, log)


def _check_replayable(spec: Spec) -> ArmsSpec:
    """Return the spec if a log can replay it; refuse one without arms, with sources, or of several reports."""
    if not isinstance(spec, ArmsSpec):
        detail = "must be of an algorithm that chooses an arm for each person"
        raise SpecError(detail, field="algorithm.name", remedy="choose another, or simulate")
    for is_unsupported, field in ((bool(spec.sources), "sources"), (spec.reports > 1, "experiment.reports_per_person")):
        if is_unsupported:
            raise SpecError("nobody replays it", field=field, remedy="remove it")
    return spec


class _EndOfLog(Exception):
    """The log has no more rows."""


class _LogEnvironment(Environment):
    """An environment of logged rows: features, the arm, the reward. Rewards of all other arms are unknown."""

    def contexts(self, _n_previous: int, people: int, _rng: np.random.Generator) -> Array:
        """Refuse: `_ReplaySimulation` reads the rows itself."""
        raise NotImplementedError

    def means(self, contexts: Array) -> Array:
        """Refuse: mean rewards of the arms are unknown."""
        raise NotImplementedError

    def rewards(self, contexts: Array, _decisions: Any, _rng: np.random.Generator) -> Array:
        """Return the logged rewards of the rows."""
        return np.asarray(contexts[:, -1])

    def play(self, _decisions: Any, contexts: Array) -> PlayedRewards:
        """Return the total reward of the rows, without regret."""
        return PlayedRewards(len(contexts), float(contexts[:, -1].sum()), np.nan, np.full(1, np.nan))


class _ReplaySimulation(Simulation):
    """A simulation whose participants are the rows of a log with the arm that the policy chooses."""

    def __init__(self, spec: Spec, seed: int, rows: Array) -> None:
        super().__init__(spec, seed, environment=_LogEnvironment())
        self.judgement = None  # true effects are unknown
        self._rows, self.n_rows_used = rows, 0
        self.rewards: list[Array] = []
        self.closed_rounds: list[dict[str, Any]] = []
        self.has_ended = False

    def play_all(self) -> None:
        """Play rounds until the experiment is over or the log has no more rows."""
        while self.step.batch_size:
            n_old_batches, start_row = len(self.rewards), self.n_rows_used
            try:
                self.close_round()
            except _EndOfLog:
                del self.rewards[n_old_batches:]
                self.n_rows_used, self.has_ended = start_row, True
                return
            rewards = np.concatenate(self.rewards[n_old_batches:])
            row = {"round": len(self.closed_rounds) + 1, "people": len(rewards)}
            self.closed_rounds.append({**row, "rows": self.n_rows_used - start_row, "reward": float(rewards.mean())})

    def play(self, policy: Any, people: int, rng: np.random.Generator, _n_previous: int = 0) -> Any:
        """Let the next rows with the arm that the policy chooses take part."""
        rows, coins, arms = self._accept_rows(policy, people, rng)
        self.rewards.append(rows[:, -1])
        return self.simulate_rewards(policy, rows, coins, Arms(arms), rng)

    def _accept_rows(
        self, policy: Any, n_participants: int, rng: np.random.Generator
    ) -> tuple[Array, NDArray[np.uint32], NDArray[np.int64]]:
        """Return rows, coins and arms of the next participants whose logged arm the policy chooses."""
        accepted, n_remaining = [], n_participants
        while n_remaining:
            rows = self._rows[self.n_rows_used : self.n_rows_used + max(64, len(self.spec.options) * n_remaining)]
            if not len(rows):
                raise _EndOfLog
            coins = draw_coins(rng, len(rows))
            arms = policy.decide(encode_contexts(rows, self.spec), coins).arms
            matches = np.flatnonzero(arms == rows[:, -2])[:n_remaining]
            accepted.append((rows[matches], coins[matches], arms[matches]))
            n_remaining -= len(matches)
            self.n_rows_used += len(rows) if n_remaining else int(matches[-1]) + 1
        rows, coins, arms = (np.concatenate(parts) for parts in zip(*accepted, strict=True))
        return rows, coins, arms


def _build_result(spec: ArmsSpec, run: _ReplaySimulation, log: ChoiceLog) -> Replayed:
    """Build the replay's result, with estimates and what the log was too short for."""
    result, accepted = run.schedule.answer(run.step), sum(closed["people"] for closed in run.closed_rounds)
    horizon = spec.experiment.horizon
    shortfall = f"the log ended after {accepted:,} of {horizon:,} people who count: set users={accepted}, or log more"
    return Replayed(
        spec,
        LoadedPolicy(spec, run.step.policy),
        build_result(spec.name, result, conclude(run.schedule, run.step, result)) if result.says_something else None,
        _estimate_mean("replayed", np.concatenate(run.rewards)),
        _estimate_mean("the log", log.rewards),
        accepted,
        run.n_rows_used,
        tuple(run.closed_rounds),
        (*log.remarks, *((shortfall,) if run.has_ended else ())),
    )


def _estimate_mean(name: str, rewards: Array) -> Value:
    rows = np.arange(len(rewards))
    return RewardSample(rewards, rows, None, 0.95).estimate_mean(name, np.ones(len(rewards)))


def _check_uniform(log: ChoiceLog, contexts: Array, action: str, propensity: str | None) -> None:
    """Raise an error if a log's arms were not chosen uniformly at random in every group of participants.

    Arms are counted among all participants and in groups by each feature; chi-squared tests of all counts together
    have a false alarm probability of `FALSE_ALARM_PROBABILITY`.
    """
    n_arms, remedy = len(log.arms), "use lab.evaluate, which takes any propensities"
    if propensity is not None and (np.abs(log.propensities * n_arms - 1) > _PROPENSITY_TOLERANCE).any():
        detail = f"must be 1 / {n_arms} in every row: replay needs arms that were chosen uniformly at random"
        raise InputError(detail, field=propensity, remedy=remedy)
    limit = FALSE_ALARM_PROBABILITY / (1 + contexts.shape[1])
    for groups in (np.zeros(len(log), np.int64), *(_group_by_feature(values) for values in contexts.T)):
        counts = np.zeros((int(groups.max()) + 1, n_arms))
        np.add.at(counts, (groups, log.arm_indices), 1)
        expected = counts.sum(axis=1, keepdims=True) / n_arms
        counts, expected = counts[expected[:, 0] >= 5], expected[expected[:, 0] >= 5]
        statistic = float((np.square(counts - expected) / expected).sum())
        if counts.size and chdtrc(counts.shape[0] * (n_arms - 1), statistic) < limit:
            detail = "has arms that were not chosen uniformly at random: some are too frequent for some people"
            raise InputError(detail, field=action, remedy=remedy)


def _group_by_feature(values: Array) -> NDArray[np.int64]:
    """Return each participant's group by a feature, (n,): by its values if there are few, else by quartiles."""
    filled = np.where(np.isnan(values), np.inf, values)
    distinct, indices = np.unique(filled, return_inverse=True)
    if len(distinct) <= _MAX_LEVELS:
        return np.asarray(indices, np.int64)
    return np.searchsorted(np.quantile(filled[np.isfinite(filled)], _QUARTILE_LEVELS), filled).astype(np.int64)
