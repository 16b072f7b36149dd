"""Attack the support that published PrivateLASSO tells: one person decides which features are candidates at all."""

import math
from typing import Final

import numpy as np

from privateer_core.accounting.events import Approximate
from privateer_lab.audit.case import Case
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import model_of, releases
from privateer_papers.paper_3.lasso_bandits import PENALTY, Problem, lasso
from privateer_papers.paper_3.privatelasso import support
from privateer_papers.published_trust import PUBLISHED

_PEOPLE: Final = 1024
_FEATURES: Final = 8
_PROBLEM: Final = Problem(_FEATURES, 3, 1.0, 1.0, 1 / _FEATURES, _PEOPLE, 1.0, 1e-6)
_LEAST: Final = 4_000


def cases(samples: int, flips: bool = True) -> list[Case]:
    """Return an attack on S_1 at its paper's promise; the person's reward is 1 or -1.

    Parameters
    ----------
    flips
        Whether the person's coordinate is a candidate (in S_0) in one case alone; otherwise it is one in both.

    Notes
    -----
    The claim is unsafe where S_0 flips: no noise is in S_0, so that nothing covers it.
    """
    name = "a candidate or none" if flips else "a candidate either way"

    def sample(who: int, count: int) -> Scores:
        penalty = PENALTY * math.sqrt(2 * math.log(_PEOPLE) * math.log(_FEATURES) / _PEOPLE)
        estimate = _estimate(penalty, 1 - 2 * who, 1.0 if flips else 1.5)
        rng = np.random.default_rng([count, who])
        return np.array([0 in support(estimate, penalty, _PROBLEM, rng) for _ in range(count)], np.float64)

    promise = (_PROBLEM.epsilon, _PROBLEM.delta)
    model, count = model_of(releases), max(_LEAST, samples // 20)
    return [
        Case(
            name, "paper-3-privatelasso", model, PUBLISHED, *promise, Approximate(*promise), sample, count, unsafe=flips
        )
    ]


def _estimate(penalty: float, reward: float, level: float) -> Scores:
    """Return the LASSO estimate, (features,), where 128 people have each coordinate, and rewards of that of the person.

    Those of everybody else make the person's coordinate ``level`` times the threshold of candidates; the others are 0.
    """
    each = _PEOPLE // _FEATURES
    products = np.zeros(_FEATURES)
    products[0] = 4 * penalty * level * each + reward
    return lasso(each * np.eye(_FEATURES), products, _PEOPLE, penalty / _PEOPLE)
