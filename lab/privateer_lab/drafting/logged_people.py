"""People made from a log: its rows, and what a model that is fitted to it expects of every option."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import chi2, f

from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import OTHER, Boolean, Categorical
from privateer_core.spec.features import Feature, Numeric, Ranked
from privateer_lab.clusters import design_effect, error_of_mean
from privateer_lab.drafting.column_choice import parts_of_numbers
from privateer_lab.drafting.outcome_model import (
    BESIDE,
    BY_ARM,
    TOGETHER,
    LoggedRows,
    OutcomeModel,
    fitted,
    propensities,
    with_means_of_rows,
)
from privateer_lab.drafting.toml_values import toml
from privateer_lab.environments.rows import OF, ObservedRewards, RowPeople
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes
from privateer_lab.tables import shortened
from privateer_lab.tables.data_column import DataColumn

Array = NDArray[np.float64]
_GROUPS: Final = 5
_UNEVEN: Final = 1e-6
"""Probability by chance below which options were not given at random."""
_SUSPECT: Final = 1e-3
"""Probability by chance below which this is suspected where the model contradicts the rows."""
_CELLS: Final = 8
_DUST: Final = 1e-9
_TELLING: Final = 0.6
"""Share of variance from which a feature is probably an outcome itself."""
_WHAT: Final = {
    BY_ARM: "the means of the options alone, which no feature makes clearly better",
    BESIDE: "features beside the options",
    TOGETHER: "features and options together",
}
_DIFFERS: Final = "the best option differs between people"
_ALIKE: Final = {
    BESIDE: "the best option is the same for everybody, as far as these rows tell",
    TOGETHER: "what options do differs between people, and one is best for all",
}
_APART: Final = 3.0
"""Standard errors of the mean of an option's rows by which the model may expect another one, where options are few."""
_NORMAL: Final = 0.00135
"""Probability above so many standard errors."""


@dataclass(frozen=True)
class LoggedPeople:
    """Rows of a log as simulated people."""

    spec: ArmsSpec  # whose features and options they have
    rows: LoggedRows  # contexts, options and rewards
    model: OutcomeModel  # what may be expected of them
    reward: str  # what their rewards are called
    known: Array | None = None  # shape (n,): the probability of each row's option; None: the log does not have it

    @cached_property
    def outcomes(self) -> PotentialOutcomes:
        """What each option would have brought each row, without bias, in whatever way options were given.

        Source: Dudik, Langford and Li 2011, Doubly robust policy evaluation and learning (ICML).
        """
        rows, rewards = self.rows, self.model.unseen.copy()
        likely = (
            propensities(rows, rewards.shape[1], by_features=bool(self.uneven)) if self.known is None else self.known
        )
        left = rows.rewards - self.model.held_out
        rewards[np.arange(len(left)), rows.arms] += left / likely
        expected, mean = self.model.unseen.mean(axis=1), float(rows.rewards.mean())
        return PotentialOutcomes(
            self.spec.features, rows.contexts, rewards, expected, mean, float(np.square(left).mean())
        )

    @property
    def means(self) -> Array:
        """Expected rewards in their own unit, shape (n, arms)."""
        return self._in_units(self._expected)

    @cached_property
    def _expected(self) -> Array:
        """Means of the model, which is cautious: where chance gave options they have those of their rows."""
        is_plain = self.model.kind == BY_ARM or self._shifted_by(_SUSPECT)
        return self.model.means if is_plain else with_means_of_rows(self.rows, self.model.means)

    @property
    def got(self) -> Array:
        """Rewards that people got, in their own unit, (n,)."""
        return self._in_units(self.rows.rewards)

    def _in_units(self, scaled: Array) -> Array:
        reward = self.spec.reward
        return np.asarray(np.clip(reward.low + reward.span * scaled, reward.low, reward.high))

    @property
    def people(self) -> RowPeople:
        """Simulated people."""
        law = None if self.rows.binary else ObservedRewards(self.got, self._in_units(self.model.held_out))
        return RowPeople(self.rows.contexts, self.means, self.spec.reward, law)

    def write(self, path: Path, options: Sequence[str]) -> str:
        """Write a Parquet file; return the ``[population]`` that names it, for a spec beside it with some options."""
        import pyarrow as pa
        from pyarrow import parquet

        columns: dict[str, Any] = {
            name: _written(feature, values)
            for (name, feature), values in zip(self.spec.features.items(), self.rows.contexts.T, strict=True)
        }
        expected = {
            arm: _fresh(columns, f"{self.reward}{OF}{arm}", values)
            for arm, values in zip(self.spec.options, self.means.T, strict=True)
        }
        kept = [expected[arm] for arm in options]
        lines = [
            "",
            "[population]  # simulated people: rows of the file, and what a model expects of them",
            'name = "rows"',
        ]
        lines += [f"path = {toml(path.name)}"]
        lines += [f"# rewards = {toml([*expected.values()])}"] if len(kept) < len(expected) else []
        lines += [f"rewards = {toml(kept)}"]
        if not self.rows.binary:
            got = _fresh(columns, self.reward, self.got)
            held_out = _fresh(columns, f"expected {self.reward}", self._in_units(self.model.held_out))
            lines.append(f"observed = {toml({'got': got, 'expected': held_out})}")
        parquet.write_table(pa.table(columns), path)
        return "\n".join([*lines, ""])

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the model: what it is, how well it fits, and what these people are worth."""
        return (*self._fit(), *self._by_cluster(), *(self.contradictions or [self._worth()]), *self._warnings())

    @cached_property
    def contradictions(self) -> list[str]:
        """Why nothing is said of options: the model expects other means of them than their own rows have.

        Where options were given at random their people are alike, so that features cannot explain what they differ by.
        """
        options, model = self.spec.options, self.means.mean(axis=0)
        if self.model.kind == BY_ARM:
            return []
        most = max(_APART, float(ndtri(1 - _NORMAL / len(options))))
        apart = []
        for arm, (option, expected) in enumerate(zip(options, model.tolist(), strict=True)):
            own = self.rows.arms == arm
            got = self.got[own]
            # Rows that are all alike may be so by chance: one more of another kind is allowed for.
            error = np.hypot(error_of_mean(got, self.rows.of(own).units), self.spec.reward.span / len(got))
            if abs(expected - got.mean()) > most * error:
                apart.append(f"{expected:.3g} of {shortened(option)}, whose rows have {got.mean():.3g}")
        if not apart:
            return []
        return [
            f"Nothing is said of options: the model expects {', '.join(apart)}, {_APART:g} standard errors away or "
            "more. A feature that was measured after the choice takes the effect of options: leave it out with "
            "--ignore. Or options were given by features, for which the model allows. Until you know, do not believe "
            "what plan and simulate say of options."
        ]

    @property
    def differs(self) -> bool:
        """Whether the model says clearly more of options where features tell people apart."""
        return self.model.kind == TOGETHER

    @property
    def _is_one_best(self) -> bool:
        """Whether one option is best for all of these people, or as good as the best."""
        return self._most - float(self.means.mean(axis=0).max()) < _DUST * self.spec.reward.span

    @property
    def _most(self) -> float:
        return float(self.means.max(axis=1).mean())

    def _fit(self) -> list[str]:
        model, losses = self.model, self.model.losses
        what = "log loss" if self.rows.binary else "squared error"
        scale = 1.0 if self.rows.binary else self.spec.reward.span**2
        listed = ", ".join(f"{name} {scale * loss:.5g}" for name, loss in losses.items())
        order = np.array_split(np.argsort(model.held_out, kind="stable"), _GROUPS)
        pairs = [(self._in_units(model.held_out[some]).mean(), self.got[some].mean()) for some in order]
        fifths = ", ".join(f"{expected:.3g} ({seen:.3g})" for expected, seen in pairs)
        best = "" if self.contradictions else _ALIKE.get(model.kind, "") if self._is_one_best else _DIFFERS
        kind = f"{_WHAT[model.kind]}{': ' if best else ''}{best}"
        return [
            f"Simulated people: {len(self.got):,} rows, drawn with replacement, and a model of {kind}.",
            f"Rows that it had not seen: {what} {listed}; R2 {self._r2:.4f}.",
            f"Calibration, expected (observed) by fifths of what was expected: {fifths}.",
        ]

    def _by_cluster(self) -> list[str]:
        """Say what a trial of such clusters costs, of which plan and simulate know nothing."""
        rows = self.rows
        if rows.clusters is None:
            return []
        effect = design_effect(rows.rewards, rows.arms, rows.units)
        return [
            f"Rows are {int(rows.units.max()) + 1:,} clusters: differences between options have {effect:.3g} times the "
            "variance of as many independent rows. plan and simulate are about independent people, each with an option "
            "of their own; where clusters get options as in these rows, take so many times as many people."
        ]

    @property
    def _r2(self) -> float:
        """Share of the variance of rewards that the model tells of rows that it had not seen."""
        return 1 - float(((self.rows.rewards - self.model.held_out) ** 2).mean() / self.rows.rewards.var())

    def _worth(self) -> str:
        means = self.means.mean(axis=0)
        if self._is_one_best and float(np.ptp(means)) < _DUST * self.spec.reward.span:
            return f"Expected of every option: {means[0]:.3g}. All are equal, as far as these rows tell."
        told = ", ".join(
            f"{shortened(arm)} {mean:.3g}" for arm, mean in zip(self.spec.options, means.tolist(), strict=True)
        )
        more = f"{self._most:.3g} if everybody had their best option"
        most = "nothing more is to be had by context" if self._is_one_best else more
        return f"Expected if everybody had the same option: {told}; {most}."

    @cached_property
    def uneven(self) -> list[str]:
        """Features by which shares of options differ: they were given by them, or these were measured after it."""
        return self._shifted_by(_UNEVEN)

    def _shifted_by(self, chance: float) -> list[str]:
        features = zip(self.spec.features.items(), self.rows.contexts.T, strict=True)
        least = chance / len(self.spec.features)
        return [
            name for (name, feature), values in features if _probability(_cells(feature, values), self.rows) < least
        ]

    def _warnings(self) -> list[str]:
        chosen = list(map(shortened, self.uneven))
        told = f"Features tell {self._r2:.0%} of how rewards vary, which is rare"
        uneven = (
            f"Shares of options differ by {', '.join(chosen)}. Either options were not given at random, and the model "
            "takes what differs between these people for what options do, as far as features do not say it; or that "
            "was measured after the choice, and options changed it: leave it out with --ignore."
        )
        found = {
            f"{told}: leave out with --ignore what is known only after the choice.": self._r2 > _TELLING,
            uneven: bool(chosen),
        }
        return [sentence for sentence, holds in found.items() if holds]


def _fresh(columns: dict[str, Any], name: str, values: Array) -> str:
    """Add a column by a name that no other one has; return the name."""
    while name in columns:
        name += "'"
    columns[name] = values
    return name


def logged_people(
    spec: ArmsSpec,
    columns: list[DataColumn],
    chosen: NDArray[np.int64],
    rewards: Array,
    called: str,
    known: Array | None = None,
    clusters: NDArray[np.int64] | None = None,
) -> LoggedPeople:
    """Fit a model to rows, all of which have an option and a reward.

    columns: those of the spec's features, in their order.
    chosen (n,): the place of each row's option among the spec's.
    rewards (n,): in the spec's unit.
    called: what rewards are called.
    known (n,): the probability of each row's option, where the log has it.
    clusters (n,): what rows depend on each other by; None: they are independent.
    """
    contexts = np.stack(
        [one.read_as(feature) for feature, one in zip(spec.features.values(), columns, strict=True)], axis=1
    )
    scaled = spec.reward.scaled_all(rewards)
    levels = [isinstance(feature, Boolean | Categorical) for feature in spec.features.values()]
    rows = LoggedRows(contexts, levels, chosen, scaled, spec.reward.kind == "binary", clusters)
    return LoggedPeople(spec, rows, fitted(rows, len(spec.options)), called, known)


def _written(feature: Feature, values: Array) -> list[Any]:
    """Return a column for a file: rare levels have no name of their own."""
    if isinstance(feature, Categorical):
        names = [*map(str, feature.levels), OTHER]
        return [None if np.isnan(one) else names[min(int(one), len(names) - 1)] for one in values]
    if isinstance(feature, Boolean):
        return [None if np.isnan(one) else bool(one) for one in values]
    return [None if np.isnan(one) else one for one in values.tolist()]


def _cells(feature: Feature, values: Array) -> NDArray[np.int64]:
    """Return a cell for each row: its level, or its part of the numbers."""
    is_number = isinstance(feature, Numeric | Ranked)
    cells = parts_of_numbers(values, _CELLS) if is_number else np.nan_to_num(values, nan=-1.0)
    return np.asarray(np.unique(cells, return_inverse=True)[1])


def _probability(cells: NDArray[np.int64], rows: LoggedRows) -> float:
    """Return the probability by chance of shares that differ as much between cells (Pearson's chi-squared test)."""
    counts = np.zeros((int(cells.max()) + 1, int(rows.arms.max()) + 1))
    np.add.at(counts, (cells, rows.arms), 1)
    is_frequent = counts.sum(axis=1) >= _CELLS * counts.shape[1]
    if rows.clusters is not None:
        kept = is_frequent[cells]
        return _probability_by_cluster(cells[kept], rows.of(kept))
    counts = counts[is_frequent]
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / max(counts.sum(), 1)
    freedom = (counts.shape[0] - 1) * (counts.shape[1] - 1)
    if freedom < 1 or not (expected > 0).all():
        return 1.0
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), freedom))


def _probability_by_cluster(cells: NDArray[np.int64], rows: LoggedRows) -> float:
    """Return the same where sums by cluster are what is independent (Hotelling's test of their products)."""
    groups, options = (one[:, None] == np.unique(one)[:-1] for one in (cells, rows.arms))
    products = (groups - groups.mean(axis=0))[:, :, None] * (options - options.mean(axis=0))[:, None, :]
    sums = np.zeros((len(np.unique(rows.units)), products[0].size))
    np.add.at(sums, rows.units, products.reshape(len(cells), -1))
    n_clusters, freedom = sums.shape
    if not 0 < freedom < n_clusters:
        return 1.0
    total = sums.sum(axis=0)
    distance = float(total @ np.linalg.pinv(n_clusters * np.cov(sums.T, ddof=1).reshape(freedom, freedom)) @ total)
    free = n_clusters - freedom
    return float(f.sf(distance * free / (freedom * (n_clusters - 1)), freedom, free))
