"""Simulated participants from a log: its rows, and each arm's expected reward by a fitted model."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.categories import OTHER, Boolean, Categorical
from privateer_core.spec.features import Feature
from privateer_lab.analysis.clusters import cluster_standard_error, design_effect
from privateer_lab.drafting.drawn_options import LateSigns
from privateer_lab.drafting.option_lead import OptionLead, find_lead
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
from privateer_lab.planning.expectation.expected import Unit
from privateer_lab.planning.feature_sets.outcomes import PotentialOutcomes, encode_cells
from privateer_lab.tables import shorten
from privateer_lab.tables.data_column import DataColumn

Array = NDArray[np.float64]
_N_CALIBRATION_GROUPS: Final = 5
_ROUNDING_ERROR: Final = 1e-9
_MIN_DIFFERENCE: Final = 1e-3
"""Smallest difference that digits of rewards show, as a share of their range."""
_SUSPICIOUS_R2: Final = 0.6
"""Share of explained variance above which some features are probably outcomes."""
_MODEL_LABELS: Final = {
    BY_ARM: "the mean of each option",
    ADDITIVE: "features beside the options",
    INTERACTIONS: "features and options together",
}
_DIFFER: Final = "the best option differs between people"
_TIE_LABELS: Final = {
    ADDITIVE: "the best option is the same for everybody, as far as these rows tell",
    INTERACTIONS: "what options do differs between people, and one is best for all",
}


@dataclass(frozen=True)
class LoggedPeople:
    """Rows of a log as simulated participants."""

    spec: ArmsSpec  # of the features and arms
    rows: LoggedRows  # contexts, options and rewards
    model: OutcomeModel  # of expected rewards, by the features that are not suspected
    late: LateSigns
    reward_name: str
    propensities: Array | None = None  # shape (n,): of each row's arm; None: not in the log

    @cached_property
    def outcomes(self) -> PotentialOutcomes:
        """Unbiased estimates of each row's reward under every arm (doubly robust), for any assignment of arms.

        Source: Dudik, Langford and Li 2011, Doubly robust policy evaluation and learning (ICML).
        """
        rows, rewards = _without_suspects(self.rows, self.spec, self.late), self.model.cross_fitted_means.copy()
        likely = self.propensities
        if likely is None:
            likely = estimate_propensities(rows, rewards.shape[1], by_features=bool(self.uneven_features))
        residuals = rows.rewards - self.model.held_out
        rewards[np.arange(len(residuals)), rows.arms] += residuals / likely
        mean_expected, mean = self.model.cross_fitted_means.mean(axis=1), float(rows.rewards.mean())
        features = {name: self.spec.features[name] for name in self.feature_names}
        cells = encode_cells(features, rows.contexts)
        return PotentialOutcomes(cells, rewards, mean_expected, mean, float(np.square(residuals).mean()))

    @cached_property
    def held_out_gain(self) -> tuple[float, float]:
        """Gain over the best single arm, and its standard error, of each row's best arm by a model of other rows."""
        rewards, chosen = self.outcomes.rewards, self.model.cross_fitted_means.argmax(axis=1)
        gains = rewards[np.arange(len(rewards)), chosen] - rewards[:, rewards.mean(axis=0).argmax()]
        span = self.spec.reward.span
        return span * float(gains.mean()), span * cluster_standard_error(gains, self.rows.units)

    @property
    def has_held_out_gain(self) -> bool:
        """Whether rows show, beyond two standard errors, that choosing by features gains."""
        gain, standard_error = self.held_out_gain
        return self.has_interactions and gain > 2 * standard_error

    @property
    def understated_gain(self) -> float:
        """How much less simulated people can gain than choices gained on held-out rows; 0 if these show no gain."""
        expected_gain = self._best_reward - float(self.means.mean(axis=0).max())
        return max(0.0, self.held_out_gain[0] - expected_gain) if self.has_held_out_gain else 0.0

    @cached_property
    def lead(self) -> OptionLead:
        """How much the best single arm earns more than the arm of which that is least certain."""
        return find_lead(self.spec.options, self.outcomes.rewards, self.rows.units, self.spec.reward.span)

    def explain_lead(self) -> str:
        """Name the best single arm and how sure that is, or say that rows do not tell it from another."""
        return self.lead.explain(self._unit)

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

    @property
    def _expected_rewards(self) -> Array:
        """Expected rewards of the arms that rows have, (n,): of a model of other rows if it has features.

        Without features the means of other rows order arms against their own rewards.
        """
        is_plain = self.model.kind == BY_ARM
        own_means = self.means[np.arange(len(self.means)), self.rows.arms]
        return own_means if is_plain else self._in_units(self.model.held_out)

    def _in_units(self, scaled: Array) -> Array:
        reward = self.spec.reward
        return np.asarray(np.clip(reward.low + reward.span * scaled, reward.low, reward.high))

    @property
    def environment(self) -> RowPeople:
        """The environment of simulated participants."""
        law = None if self.rows.binary else ObservedRewards(self.observed_rewards, self._expected_rewards)
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
            held_out = _add_column(columns, f"expected {self.reward_name}", self._expected_rewards)
            section.append(f"observed = {to_toml({'got': observed, 'expected': held_out})}")
        parquet.write_table(pa.table(columns), path)
        return "\n".join([*section, ""])

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the model: warnings, the expected rewards, its kind and its fit."""
        return (*self.warnings, *self.fit_notes)

    @property
    def fit_notes(self) -> list[str]:
        """Sentences about the model: the expected rewards, its kind and its fit."""
        return [self._say_means(), *self._say_fit(), *self._say_design()]

    @property
    def warnings(self) -> list[str]:
        """Columns that may have been measured after the choice, and a model that explains more than is usual."""
        r2 = f"features explain {100 * self._r2:.0f} % of how rewards vary, which is rare"
        remark = f"{r2}: leave out with --ignore what is known only after the choice."
        strong = [remark] if self._r2 > _SUSPICIOUS_R2 else []
        return [f"Warning: {sentence}" for sentence in (*self.late.explain(), *strong)]

    @property
    def _unit(self) -> Unit:
        """The unit of rewards."""
        means, reward = self.means.mean(axis=0), self.spec.reward
        differences = max(float(np.ptp(means)), self._best_reward - float(means.max()), _MIN_DIFFERENCE * reward.span)
        return Unit(reward.is_rate, differences)

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
        """Say which models were compared on rows not seen, which won, and its calibration."""
        model, unit = self.model, self._unit
        best = _TIE_LABELS.get(model.kind, "") if self._has_single_best else _DIFFER
        if len(model.losses) == 1:
            comparison = "Features were not tried: they do not vary, or rows are too few."
        else:
            others = [_MODEL_LABELS[kind] for kind in model.losses if kind != model.kind]
            share = f"{100 * self._r2:.0f} %" if self._r2 >= 1 / 100 else "less than 1 %"
            explained = "" if model.kind == BY_ARM else f" It explains {share} of how rewards vary."
            winner = f"a model of {_MODEL_LABELS[model.kind]} won over {' and over '.join(others)}"
            comparison = f"On rows that it had not seen, {winner}{': ' if best else ''}{best}.{explained}"
        groups = np.array_split(np.argsort(model.held_out, kind="stable"), _N_CALIBRATION_GROUPS)
        pairs = [(self._in_units(model.held_out[rows]).mean(), self.observed_rewards[rows].mean()) for rows in groups]
        fifths = ", ".join(f"{unit.write(expected)} ({unit.write(observed)})" for expected, observed in pairs)
        is_shown = model.kind != BY_ARM
        return [
            f"Simulated people: {len(self.observed_rewards):,} rows, drawn with replacement. {comparison}",
            *([f"Calibration, expected (observed) by fifths of what was expected: {fifths}."] if is_shown else []),
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
        """Compare expected rewards of each option for everybody with those of the best one."""
        means, write = self.means.mean(axis=0), self._unit.write
        if self._has_single_best and float(np.ptp(means)) < _ROUNDING_ERROR * self.spec.reward.span:
            return f"Expected of every option: {write(means[0])}. All are equal, as far as these rows tell."
        pairs = zip(self.spec.options, means.tolist(), strict=True)
        rewards = ", ".join(f"{shorten(arm)}: {write(mean)}" for arm, mean in pairs)
        best_reward = f"{write(self._best_reward)} if everybody had their best option"
        comparison = "these rows do not show that another is best for some" if self._has_single_best else best_reward
        return (
            f"Expected if everybody had the same option: {rewards} ({self._unit.margin(2 * self._standard_error)} or "
            f"less); {comparison}.{self._say_held_out_gain()}"
        )

    def _say_held_out_gain(self) -> str:
        """Return a sentence on the gain of a choice on held-out rows, and whether the model expects less."""
        if not self.has_held_out_gain:
            return ""
        (gain, standard_error), unit, understated = self.held_out_gain, self._unit, self.understated_gain
        difference = f"{unit.points(gain)} ({unit.margin(2 * standard_error)})"
        sentence = f" On rows that the model had not seen its choices earn {difference} more than the best of these"
        at_most = unit.points(gain - understated)
        remark = f": simulated people gain less, {at_most} at most, since their model is cautious"
        return f"{sentence}{remark if understated else ''}."

    @property
    def _standard_error(self) -> float:
        """The largest standard error of an option's mean reward by these rows, in the unit of rewards."""
        errors = (cluster_standard_error(rewards, self.rows.units) for rewards in self.outcomes.rewards.T)
        return self.spec.reward.span * max(errors)

    @property
    def uneven_features(self) -> list[str]:
        """Features by which arms were assigned, as they depend on the arm and are known before the choice."""
        return [name for name in self.late.dependent if name in self.late.known_features]

    @property
    def suspects(self) -> tuple[str, ...]:
        """Features that may have been measured after the choice, which the model does not know."""
        return self.late.suspects

    @property
    def feature_names(self) -> list[str]:
        """The features that are not suspected."""
        return [name for name in self.spec.features if name not in self.suspects]


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
    known: Collection[str] = (),
) -> LoggedPeople:
    """Fit a model to rows with an arm's index, features' columns and a reward in the spec's unit, maybe clustered.

    It knows no feature that seems to be measured after the choice, but for those that are ``known`` before it.
    """
    values = [column.read_as(feature) for feature, column in zip(spec.features.values(), columns, strict=True)]
    contexts = np.stack(values, axis=1) if values else np.zeros((len(arms), 0))
    scaled = spec.reward.scaled_all(rewards)
    is_categorical = [isinstance(feature, Boolean | Categorical) for feature in spec.features.values()]
    rows = LoggedRows(contexts, is_categorical, arms, scaled, spec.reward.kind == "binary", clusters)
    late = LateSigns.find(spec.features, rows, propensities, known)
    model = fit_outcome_model(_without_suspects(rows, spec, late), len(spec.options))
    return LoggedPeople(spec, rows, model, late, reward_name, propensities)


def _without_suspects(rows: LoggedRows, spec: ArmsSpec, late: LateSigns) -> LoggedRows:
    """Return rows without the features that seem to be measured after the choice."""
    return rows.select_features([place for place, name in enumerate(spec.features) if name not in late.suspects])


def _to_file_values(feature: Feature, values: Array) -> list[Any]:
    """Return a feature's values for a file; rare levels are written as the level of others."""
    if isinstance(feature, Categorical):
        names = [*map(str, feature.levels), OTHER]
        return [None if np.isnan(code) else names[min(int(code), len(names) - 1)] for code in values]
    if isinstance(feature, Boolean):
        return [None if np.isnan(value) else bool(value) for value in values]
    return [None if np.isnan(value) else value for value in values.tolist()]
