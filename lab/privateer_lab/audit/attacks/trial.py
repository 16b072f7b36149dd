"""An attack by somebody who knows everybody else, and reads what is released of two segments."""

from typing import Final

import numpy as np

from privateer_core.accounting.events import Pure
from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.questions import KeyedHits
from privateer_core.privacy.trust import TIGHT
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import model_of, releases

_EPSILON: Final = 1.0
NAME: Final = "one segment or the other"


def cases(samples: int) -> list[Case]:
    """Return an attack on a curator's release: the person is in the one segment or in the other."""
    claim = (model_of(releases), TIGHT, _EPSILON, 0.0)
    return [Case(NAME, "trial", *claim, Pure(_EPSILON), _pairs, max(4_000, samples // 4))]


def _pairs(who: int, count: int) -> Scores:
    """Releases about one person, who was treated and earned 1, in one of the two segments.

    One release of many experiments' cells: the noise of each is its own.
    """
    mechanism = CellPairs.calibrated(KeyedHits.of_keys(2 * count), _EPSILON)
    coins, group = np.zeros(count, np.uint32), np.zeros(count, np.int64)
    records = KeyedValues(coins, 2 * np.arange(count) + who, group, np.ones(count))
    total = mechanism.add(mechanism.empty(), mechanism.randomize(records, SecureNoise()))
    return speaks(mechanism.release(total, SecureNoise()).positive.reshape(count, 2), 1.0, mechanism.scale)


def speaks(found: Scores, step: float, scale: float) -> Scores:
    """Log-likelihood ratio of the first segment's number being higher by a step, or the second's; (n,)."""
    present = (np.abs(found) - np.abs(found - step)) / scale
    return np.asarray(np.round(present[:, 0] - present[:, 1], 9))
