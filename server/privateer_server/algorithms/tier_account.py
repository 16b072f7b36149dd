"""What the participants of each tier have contributed to an experiment."""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, Self

import numpy as np

from privateer_core.answer.facts import Kind, Table
from privateer_core.arrays import Array
from privateer_core.primitives.contributions import TieredSums
from privateer_core.spec.arms import ArmsSpec

_DIGITS: Final = 4
_NO_TIER: Final = "(none)"
"""The row of people who chose no tier; no tier's name has brackets."""
_DEVIATIONS: Final = NormalDist().inv_cdf(0.975)
"""Standard errors to either side of a mean that make its 95 % interval."""


@dataclass(frozen=True)
class TierAccount:
    """Sums over rounds of the reports of every tier, first that of the experiment's own epsilon."""

    # people, information: shape (tiers,): reports, and their squared gain over the variance of a score
    people: Array
    information: Array
    # people_by_arm, values, variances: shape (tiers, arms), or (tiers, 0) where reports are about bins: reports on each
    # arm, the sum of their debiased scores, 2 reward - 1, and its variance
    people_by_arm: Array
    values: Array
    variances: Array

    @classmethod
    def start(cls, spec: ArmsSpec, *, has_single_key: bool) -> Self | None:
        """Return the account before any report; None if the experiment has no tiers."""
        n_tiers = len(spec.privacy.tier_shares)
        by_arm = np.zeros((n_tiers, spec.arm_count * has_single_key))
        return cls(np.zeros(n_tiers), np.zeros(n_tiers), by_arm, by_arm, by_arm) if n_tiers else None

    def add(self, release: TieredSums) -> Self:
        """Return the account after a round."""
        people = np.array([tier.reports for tier in release.tiers])
        account = replace(self, people=self.people + people, information=self.information + release.information)
        if not self.people_by_arm.size:
            return account
        counts, sums = (np.stack([getattr(tier, name)[0] for tier in release.tiers]) for name in ("counts", "sums"))
        gains = np.array([tier.gain for tier in release.tiers])[:, None]
        by_arm = (self.people_by_arm + counts, self.values + sums / gains, self.variances + counts / gains**2)
        return replace(account, people_by_arm=by_arm[0], values=by_arm[1], variances=by_arm[2])

    def with_arms(self, n_added: int) -> Self:
        """Return the account with arms added, on which nobody has reported."""
        names = ("people_by_arm", "values", "variances")
        return replace(self, **{name: np.pad(getattr(self, name), ((0, 0), (0, n_added))) for name in names})

    def build_tables(self, spec: ArmsSpec) -> tuple[Table, ...]:
        """Return what each tier contributed, and the mean reward of each option that its reports alone say."""
        names = [name or _NO_TIER for name in spec.privacy.tier_names]
        information = self.information / max(1.0, float(self.information.sum()))
        pairs = zip(names, spec.privacy.tier_shares, strict=True)
        rows = tuple(
            (name, epsilon, int(self.people[tier]), round(float(information[tier]), _DIGITS))
            for tier, (name, (epsilon, _)) in enumerate(pairs)
        )
        columns: dict[str, Kind] = {"tier": "words", "epsilon": "number", "people": "count", "weight": "share"}
        contributed = Table.of("what the people of each tier contributed", columns, rows)
        if not self.people_by_arm.any():
            return (contributed,)
        means = tuple(row for tier, name in enumerate(names) for row in self._list_means(spec, tier, name))
        columns = {"tier": "words", "option": "words", "mean reward": "reward", "low": "low", "high": "high"}
        return contributed, Table.of(
            "mean rewards by each tier alone, with 95 % intervals of this look", columns, means
        )

    def _list_means(self, spec: ArmsSpec, tier: int, name: str) -> list[tuple[str, str, float, float, float]]:
        """Return a row for each option that people of a tier have reported on."""
        rows = []
        for arm in np.flatnonzero(self.people_by_arm[tier]).tolist():
            people = float(self.people_by_arm[tier, arm])
            radius = _DEVIATIONS * math.sqrt(float(self.variances[tier, arm])) / people
            center = float(self.values[tier, arm]) / people
            shares = (1 + np.clip([center, center - radius, center + radius], -1.0, 1.0)) / 2
            mean, low, high = (round(float(value), _DIGITS) for value in spec.reward.unscaled(shares))
            rows.append((name, spec.options[arm], mean, low, high))
        return rows
