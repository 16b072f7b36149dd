"""Attacks by somebody who knows everybody else, and reads the effects that are published of two segments."""

from typing import Final

import numpy as np

from privateer.accounting.events import Pure
from privateer.coins import SlotLayout
from privateer.contributions import KeyedValues
from privateer.mechanisms.cell_pairs import CellPairs
from privateer.questions import KeyedHits
from privateer.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case
from privateer_lab.audit.evidence import Scores
from privateer_lab.audit.views import model_of, releases
from privateer_lab.reproductions.paper_4_conse import ConSE

_EPSILON: Final = 1.0
_PEOPLE: Final = 20_000


def cases(samples: int, published: bool = False) -> list[Case]:
    """Return an attack on what a curator releases: the person is in the one segment or in the other.

    Parameters
    ----------
    published
        Attack DP-ConSE at the epsilon that its paper states: it breaks.
    """
    sample, calibration = (_conse, "published") if published else (_pairs, "tight")
    delta = 1 / _PEOPLE if published else 0.0
    name, count = "one segment or the other", max(4_000, samples // 4)
    model = model_of(releases)
    return [Case(name, "trial", model, calibration, _EPSILON, delta, Pure(_EPSILON), sample, count)]


def _pairs(who: int, count: int) -> Scores:
    """Releases about one person, who was treated and earned 1, in one of the two segments.

    One release of many experiments' cells: the noise of each is its own.
    """
    mechanism = CellPairs.calibrated(KeyedHits(SlotLayout(0, np.zeros((2 * count, 0), np.uint32))), _EPSILON)
    coins, group = np.zeros(count, np.uint32), np.zeros(count, np.int64)
    records = KeyedValues(coins, 2 * np.arange(count) + who, group, np.ones(count))
    total = mechanism.add(mechanism.empty(), mechanism.randomize(records, SecureNoise()))
    return _speaks(mechanism.release(total, SecureNoise()).positive.reshape(count, 2), 1.0, mechanism.scale)


def _conse(who: int, count: int) -> Scores:
    """Effects that DP-ConSE publishes of the person's segment and of the other.

    Of everybody else the control's reward is 1 and the treatment's 0; of the person it is the other way round, so
    that the effect of the person's segment rises, whichever arm the coin gives.
    """
    algorithm, rng = ConSE(_PEOPLE, 1 / 3, _EPSILON), np.random.default_rng([count, who])
    found = np.array([[_effect(algorithm, segment == who, rng) for segment in (0, 1)] for _ in range(count)])
    return _speaks(found + 1, 2 / algorithm.coins, 2 / (_EPSILON * algorithm.coins))


def _effect(algorithm: ConSE, present: bool, rng: np.random.Generator) -> float:
    """What is published of a wide bin; if the person is there, it is the first to come."""
    length = algorithm.randomized(algorithm.coins, rng)
    treated = int(rng.binomial(length - present, 0.5))
    played = np.array([length - present - treated, treated])
    won = np.array([played[0], 0])
    if present:
        arm = int(rng.integers(2))
        played[arm] += 1
        won[arm] += arm
    return algorithm.published(won, played, length, rng)


def _speaks(found: Scores, step: float, scale: float) -> Scores:
    """Log-likelihood ratio of the first segment's number being higher by a step, or the second's; (n,)."""
    present = (np.abs(found) - np.abs(found - step)) / scale
    return np.asarray(np.round(present[:, 0] - present[:, 1], 9))
