"""Simulated participants from a log: its rows, and each arm's expected reward by a fitted model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import OTHER, Boolean, Categorical
from privateer_core.spec.features import Feature
from privateer_lab.analysis.clusters import cluster_standard_error, design_effect
from privateer_lab.drafting.drawn_options import find_dependent_features
from privateer_lab.drafting.outcome_model import (
    ADDITIVE,
    BY_ARM,
    INTERACTIONS,
    LoggedRows,
    OutcomeModel,
    estimate_propensities,
    fit_outcome_model,
    with_observed_arm_means,
)
from privateer_lab.drafting.toml_values import to_toml
from privateer_lab.environments.rows import OF_ARM, ObservedRewards, RowPeople
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes, encode_cells
from privateer_lab.tables import shorten
from privateer_lab.tables.data_column import DataColumn

Array = NDArray[np.float64]
_N_CALIBRATION_GROUPS: Final = 5
_ROUNDING_ERROR: Final = 1e-9
_SUSPICIOUS_R2: Final = 0.6
"""Share of explained variance above which a feature is probably an outcome."""
_MODEL_LABELS: Final = {
    BY_ARM: "the means of the options alone, which no feature makes clearly better",
    ADDITIVE: "features beside the options",
    INTERACTIONS: "features and options together",
}
_DIFFER: Final = "the best option differs between people"
_TIE_LABELS: Final = {
    ADDITIVE: "the best option is the same for everybody, as far as these rows tell",
    INTERACTIONS: "what options do differs between people, and one is best for all",
}
_MIN_ERRORS: Final = 3.0
"""Standard errors between an arm's expected and observed mean that count as a contradiction, for few arms."""
_TAIL_PROBABILITY: Final = 0.00135
"""Probability of a normal number above so many standard errors."""


@dataclass(frozen=True)
class LoggedPeople:
    """Rows of a log as simulated participants."""

    spec: ArmsSpec  # of the features and arms
    rows: LoggedRows  # contexts, options and rewards
    model: OutcomeModel  # of expected rewards
    reward_name: str
    propensities: Array | None = None  # shape (n,): of each row's arm; None: not in the log

    @cached_property
    def outcomes(self) -> PotentialOutcomes:
        """Unbiased estimates of each row's reward under every arm (doubly robust), for any assignment of arms.

        Source: Dudik, Langford and Li 2011, Doubly robust policy evaluation and learning (ICML).
        """
        rows, rewards = self.rows, self.model.cross_fitted_means.copy()
        likely = self.propensities
        if likely is None:
            likely = estimate_propensities(rows, rewards.shape[1], by_features=bool(self.uneven_features))
        residuals = rows.rewards - self.model.held_out
        rewards[np.arange(len(residuals)), rows.arms] += residuals / likely
        mean_expected, mean = self.model.cross_fitted_means.mean(axis=1), float(rows.rewards.mean())
        cells = encode_cells(self.spec.features, rows.contexts)
        return PotentialOutcomes(cells, rewards, mean_expected, mean, float(np.square(residuals).mean()))

    @cached_property
    def means(self) -> Array:
        """Expected rewards in their own unit, shape (n, arms); randomized arms have the means of their rows."""
        is_plain = self.model.kind == BY_ARM or self.uneven_features
        means = self.model.means if is_plain else with_observed_arm_means(self.rows, self.model.means)
        return self._in_units(means)

    @property
    def observed_rewards(self) -> Array:
        """Observed rewards in their own unit, (n,)."""
        return self._in_units(self.rows.rewards)

    def _in_units(self, scaled: Array) -> Array:
        reward = self.spec.reward
        return np.asarray(np.clip(reward.low + reward.span * scaled, reward.low, reward.high))

    @property
    def environment(self) -> RowPeople:
        """The environment of simulated participants."""
        law = None if self.rows.binary else ObservedRewards(self.observed_rewards, self._in_units(self.model.held_out))
        return RowPeople(self.rows.contexts, self.means, self.spec.reward, law)

    def write(self, path: Path, options: Sequence[str]) -> str:
        """Write a Parquet file; return the ``[population]`` that names it, for a spec with these arms."""
        import pyarrow as pa
        from pyarrow import parquet

        columns: dict[str, Any] = {
            name: _to_file_values(feature, values)
            for (name, feature), values in zip(self.spec.features.items(), self.rows.contexts.T, strict=True)
        }
        expected = {
            arm: _add_column(columns, f"{self.reward_name}{OF_ARM}{arm}", values)
            for arm, values in zip(self.spec.options, self.means.T, strict=True)
        }
        arm_columns = [expected[arm] for arm in options]
        title = "[population]  # simulated people: rows of the file, and what a model expects of them"
        section = ["", title, 'name = "rows"', f"path = {to_toml(path.name)}"]
        section += [f"# rewards = {to_toml([*expected.values()])}"] if len(arm_columns) < len(expected) else []
        section += [f"rewards = {to_toml(arm_columns)}"]
        if not self.rows.binary:
            observed = _add_column(columns, self.reward_name, self.observed_rewards)
            held_out = _add_column(columns, f"expected {self.reward_name}", self._in_units(self.model.held_out))
            section.append(f"observed = {to_toml({'got': observed, 'expected': held_out})}")
        parquet.write_table(pa.table(columns), path)
        return "\n".join([*section, ""])

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the model: its kind, its fit, and the expected rewards."""
        means = self.contradictions or [self._say_means()]
        return (*self._say_fit(), *self._say_design(), *means, *self._say_risks())

    @cached_property
    def contradictions(self) -> list[str]:
        """Arms whose expected mean contradicts the mean of their own rows, as a sentence; empty without any.

        Randomized arms have similar participants, so that features cannot explain differences between arms.
        """
        options, model = self.spec.options, self.means.mean(axis=0)
        if self.model.kind == BY_ARM:
            return []
        max_errors = max(_MIN_ERRORS, float(ndtri(1 - _TAIL_PROBABILITY / len(options))))
        arms = []
        for arm, (option, expected) in enumerate(zip(options, model.tolist(), strict=True)):
            is_arm = self.rows.arms == arm
            observed = self.observed_rewards[is_arm]
            # Equal rewards may be equal by chance: the error allows for one other reward.
            error_of_mean = cluster_standard_error(observed, self.rows.select(is_arm).units)
            standard_error = np.hypot(error_of_mean, self.spec.reward.span / len(observed))
            if abs(expected - observed.mean()) > max_errors * standard_error:
                arms.append(f"{expected:.3g} of {shorten(option)}, whose rows have {observed.mean():.3g}")
        if not arms:
            return []
        return [
            f"Nothing is said of options: the model expects {', '.join(arms)}, {_MIN_ERRORS:g} standard errors away or "
            "more. A feature that was measured after the choice takes the effect of options: leave it out with "
            "--ignore. Or options were given by features, for which the model allows. Until you know, do not believe "
            "what plan and simulate say of options."
        ]

    @property
    def has_interactions(self) -> bool:
        """Whether the model with interactions of features and arms is clearly better."""
        return self.model.kind == INTERACTIONS

    @property
    def _has_single_best(self) -> bool:
        """Whether one arm is best, or as good as the best, for all participants."""
        return self._best_reward - float(self.means.mean(axis=0).max()) < _ROUNDING_ERROR * self.spec.reward.span

    @property
    def _best_reward(self) -> float:
        return float(self.means.max(axis=1).mean())

    def _say_fit(self) -> list[str]:
        """Say which model the people have, its losses on rows not seen, and its calibration."""
        model, losses = self.model, self.model.losses
        loss_name = "log loss" if self.rows.binary else "squared error"
        scale = 1.0 if self.rows.binary else self.spec.reward.span**2
        loss_list = ", ".join(f"{name} {scale * loss:.5g}" for name, loss in losses.items())
        groups = np.array_split(np.argsort(model.held_out, kind="stable"), _N_CALIBRATION_GROUPS)
        pairs = [(self._in_units(model.held_out[rows]).mean(), self.observed_rewards[rows].mean()) for rows in groups]
        fifths = ", ".join(f"{expected:.3g} ({observed:.3g})" for expected, observed in pairs)
        best = "" if self.contradictions else _TIE_LABELS.get(model.kind, "") if self._has_single_best else _DIFFER
        kind = f"{_MODEL_LABELS[model.kind]}{': ' if best else ''}{best}"
        return [
            f"Simulated people: {len(self.observed_rewards):,} rows, drawn with replacement, and a model of {kind}.",
            f"Rows that it had not seen: {loss_name} {loss_list}; R2 {self._r2:.4f}.",
            f"Calibration, expected (observed) by fifths of what was expected: {fifths}.",
        ]

    def _say_design(self) -> list[str]:
        """Describe the design effect of clusters, which plan and simulate do not know."""
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
        """Share of the variance of rewards that the model explains on held-out rows."""
        return 1 - float(((self.rows.rewards - self.model.held_out) ** 2).mean() / self.rows.rewards.var())

    def _say_means(self) -> str:
        """Compare expected rewards of each option for everybody with those of everybody's best option."""
        means = self.means.mean(axis=0)
        if self._has_single_best and float(np.ptp(means)) < _ROUNDING_ERROR * self.spec.reward.span:
            return f"Expected of every option: {means[0]:.3g}. All are equal, as far as these rows tell."
        pairs = zip(self.spec.options, means.tolist(), strict=True)
        rewards = ", ".join(f"{shorten(arm)} {mean:.3g}" for arm, mean in pairs)
        best_reward = f"{self._best_reward:.3g} if everybody had their best option"
        comparison = "nothing more is to be had by context" if self._has_single_best else best_reward
        return f"Expected if everybody had the same option: {rewards}; {comparison}."

    @cached_property
    def uneven_features(self) -> list[str]:
        """Features that depend on the arm: arms were assigned by them, or they were measured afterwards."""
        return find_dependent_features(self.spec.features, self.rows, self.propensities)

    def _say_risks(self) -> list[str]:
        """Warn of features that tell too much of rewards, and of options whose shares differ by features."""
        names = list(map(shorten, self.uneven_features))
        r2_sentence = f"Features tell {self._r2:.0%} of how rewards vary, which is rare"
        assignment = "at random" if self.propensities is None else "with the log's propensities"
        uneven_sentence = (
            f"Shares of options differ by {', '.join(names)}, by more than chance does in one log of 1,000. Either "
            "that was measured after the choice, and options changed it: leave it out with --ignore, since no device "
            f"knows it before. Or options were not given {assignment}, and the model takes what differs between these "
            "people for what options do, as far as features do not say it."
        )
        suspicion = f"{r2_sentence}: leave out with --ignore what is known only after the choice."
        return [suspicion] * (self._r2 > _SUSPICIOUS_R2) + [uneven_sentence] * bool(names)


def _add_column(columns: dict[str, Any], name: str, values: Array) -> str:
    """Add a column under a unique name; return the name."""
    while name in columns:
        name += "'"
    columns[name] = values
    return name


def fit_logged_people(
    spec: ArmsSpec,
    columns: list[DataColumn],
    arms: NDArray[np.int64],
    rewards: Array,
    reward_name: str,
    propensities: Array | None = None,
    clusters: NDArray[np.int64] | None = None,
) -> LoggedPeople:
    """Fit a model to rows with an arm's index, features' columns and a reward in the spec's unit, maybe clustered."""
    pairs = zip(spec.features.values(), columns, strict=True)
    contexts = np.stack([column.read_as(feature) for feature, column in pairs], axis=1)
    scaled = spec.reward.scaled_all(rewards)
    is_categorical = [isinstance(feature, Boolean | Categorical) for feature in spec.features.values()]
    rows = LoggedRows(contexts, is_categorical, arms, scaled, spec.reward.kind == "binary", clusters)
    return LoggedPeople(spec, rows, fit_outcome_model(rows, len(spec.options)), reward_name, propensities)


def _to_file_values(feature: Feature, values: Array) -> list[Any]:
    """Return a feature's values for a file; rare levels are written as the level of others."""
    if isinstance(feature, Categorical):
        names = [*map(str, feature.levels), OTHER]
        return [None if np.isnan(code) else names[min(int(code), len(names) - 1)] for code in values]
    if isinstance(feature, Boolean):
        return [None if np.isnan(value) else bool(value) for value in values]
    return [None if np.isnan(value) else value for value in values.tolist()]
