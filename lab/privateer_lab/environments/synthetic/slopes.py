"""People of every kind of feature whose log odds are linear in numbers, with slopes that levels change."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import Field
from scipy.special import expit

from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.features import Feature
from privateer_lab.environments.environment import Array, EnvironmentSection
from privateer_lab.environments.synthetic.density import Seed
from privateer_lab.environments.synthetic.mixed import Independent, levels_of, places_of, slots_of


class SlopesSection(EnvironmentSection):
    """Independent people: numbers uniform in their range or by rank, every level as frequent, rewards 0 or 1.

    Attributes
    ----------
    function
        The number of the function. By default every seed has one of its own.
    scale
        Standard deviation of an arm's log odds over people and functions, where all are uniform numbers and levels.
    common
        The share of their variance that is linear in numbers in the same way at every level, if there are numbers.
    missing
        The share of people without a value, of every feature that may be missing.
    """

    name: Literal["slopes"]
    function: Seed | None = None
    scale: float = Field(default=0.75, gt=0, le=10, allow_inf_nan=False)
    common: float = Field(default=0.7, ge=0, le=1, allow_inf_nan=False)
    missing: float = Field(default=0.3, ge=0, lt=1, allow_inf_nan=False)

    def environment(self, spec: ArmsSpec, seed: int) -> "SlopesEnvironment":
        """Make the environment of the function, or of the seed's."""
        return SlopesEnvironment(self, spec.features, spec.arm_count, seed if self.function is None else self.function)


class SlopesEnvironment(Independent):
    """Linear log odds with normal slopes, and intercepts and further slopes of every level.

    Parameters
    ----------
    section
        Its scale and shares.
    features
        Those of the spec.
    arms
        How many.
    function
        Seeds the slopes.
    """

    def __init__(self, section: SlopesSection, features: Mapping[str, Feature], arms: int, function: int) -> None:
        super().__init__(features.values(), section.missing)
        self._section = section
        rng = np.random.default_rng([function, 13, arms, len(self._features)])
        self._numbers = [j for j, feature in enumerate(self._features) if not levels_of(feature)]
        self._kinds = [j for j, feature in enumerate(self._features) if levels_of(feature)]
        self._slopes = rng.standard_normal((len(self._numbers), arms))
        # Without levels an arm has an intercept and further slopes all the same, as if all people were at one level.
        slots = [levels_of(self._features[j]) + 1 for j in self._kinds] or [1]
        self._intercepts = [rng.standard_normal((count, arms)) for count in slots]
        self._changes = [rng.standard_normal((count, len(self._numbers), arms)) for count in slots]

    def means(self, contexts: Array) -> Array:
        """Return 1/(1 + exp(-scale g_k(x))), where g_k has mean 0 and variance 1 over functions; shape (n, K).

        With z the numbers as `_standardised` has them, b the slopes, a the intercepts and c the changes, all of them
        normal, g = sqrt(common) z b + sqrt(1 - common) (a_l + z c_l) / sqrt(2), where the level l is that of each
        feature with levels, added up and divided by the root of their number.
        """
        z = self._standardised(contexts)
        at = [slots_of(self._features[j], contexts[:, j]) for j in self._kinds] or [np.zeros(len(contexts), np.int64)]
        own = np.zeros((len(contexts), self._slopes.shape[1]))
        for slots, intercepts, changes in zip(at, self._intercepts, self._changes, strict=True):
            own += intercepts[slots] + np.einsum("nj,njk->nk", z, changes[slots])
        own /= np.sqrt((1 + (len(self._numbers) > 0)) * len(at))
        common = self._section.common if self._numbers else 0.0
        effects = np.sqrt(common) * (z @ self._slopes) + np.sqrt(1 - common) * own
        return np.asarray(expit(self._section.scale * effects), np.float64)

    def _standardised(self, contexts: Array) -> Array:
        """Return numbers with mean 0 and variances that add up to 1, (n, numbers); 0 for those without one."""
        z = np.zeros((len(contexts), len(self._numbers)))
        for place, j in enumerate(self._numbers):
            values = contexts[:, j]
            centred = (places_of(self._features[j], values) - 0.5) * np.sqrt(12 / len(self._numbers))
            z[:, place] = np.where(np.isnan(values), 0.0, centred)
        return z
