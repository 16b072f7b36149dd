"""Draw releases of many trials at once from the exact laws of mechanisms: repetitions are more segments."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.evidence.epochs import Epoch, TrialDesign
from privateer_server.algorithms.trial.evidence.trial_evidence import TrialEvidence

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """Answers of people: q, o, the decay of a curator's noise, and whether hits are counted (`TrialDesign.counted`)."""

    keep: float = 1.0
    other: float = 0.0
    decay: float = 0.0
    counted: bool = True

    @property
    def noise(self) -> float:
        """Variance of the discrete Laplace noise on positive hits, and on negative ones."""
        return 2 * self.decay / (1 - self.decay) ** 2


@dataclass(frozen=True)
class Trials:
    """Many trials alike. ``means`` (J, K + 1) are what people of a segment earn from an arm."""

    setting: Setting
    segments: Array
    means: Array
    people: float
    count: int
    alpha: float = 0.05
    arms: tuple[float, ...] = (0.5, 0.5)

    def begin(self) -> TrialEvidence:
        """Return evidence of nothing."""
        return TrialEvidence.begin(self.design)

    @property
    def design(self) -> TrialDesign:
        """The design of all trials together."""
        return TrialDesign(
            self.alpha, self.people, np.array(self.arms), np.tile(self.segments, self.count), self.setting.counted
        )

    def epoch(
        self,
        rng: np.random.Generator,
        people: float,
        shares: Array,
        drift: float = 0.0,
        setting: Setting | None = None,
    ) -> Epoch:
        """Draw what an epoch releases under shares (count * J, K + 1); every mean is higher by ``drift``."""
        told, p = setting or self.setting, np.tile(self.segments, self.count)[:, None]
        means = np.tile(self.means + drift, (self.count, 1))
        if told.counted:
            hit, right = shares * (told.keep * p + 2 * told.other), shares * (told.keep * p * means + told.other)
            cells = np.stack([right, hit - right], axis=-1).reshape(self.count, -1)
            rest = np.maximum(0.0, 1 - cells.sum(axis=1, keepdims=True))
            drawn = rng.multinomial(int(people), np.concatenate([cells, rest], axis=1))[:, :-1]
            pair = drawn.reshape(*shares.shape, 2).astype(np.float64)
        else:
            hits = rng.multinomial(int(people), shares)
            yes = rng.binomial(hits, 0.5 + told.keep * p * (2 * means - 1) / 2)
            pair = np.stack([yes, hits - yes], axis=-1).astype(np.float64)
        if told.decay:
            one, other = rng.geometric(1 - told.decay, (2, *pair.shape))
            pair = pair + one - other
        facts = (told.keep, told.other, told.noise, shares)
        return Epoch(people, pair[..., 0], pair.sum(axis=-1), *facts, trials=self.count)
