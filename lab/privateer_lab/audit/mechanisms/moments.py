"""Attacks on a curator's releases that choose features."""

from dataclasses import replace

import numpy as np

from privateer_core.mechanisms.screened_moments import ScreenedMoments
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.contributions import BoundedVectors
from privateer_core.primitives.questions import SecondMoments
from privateer_lab.audit.case import Case
from privateer_lab.audit.views import Coins, Maker, Target, mechanism_case, releases

_ARMS, _FEATURES = 2, 4
_DELTA = 1e-6
_BEYOND = 9.0
"""Values are so far beyond the box: protection must not depend on what an application hands over."""
_OTHERS = 40
"""Others, whom the adversary knows: a person moves scores of opposite signs only if there is something to move."""


def moment_cases(samples: int, factor: float = 1.0) -> list[Case]:
    """Return attacks on choices and blocks, by scores alone, and less what is predicted.

    Parameters
    ----------
    factor
        Divides the noise: a planted defect.
    """
    box = Ball("max", 1.0, _ARMS + _FEATURES + 1)
    cases = []
    for name, kept, screened, predicted in (
        ("block of moments", (0, 2), 0, ()),
        ("choice and block", (0,), 2, ()),
        ("choice of the rest", (0,), 1, (0.2, -0.1, 0.3)),
    ):
        question = SecondMoments(box, arms=_ARMS, kept=kept, screened=screened, predicted=predicted)
        mechanism = ScreenedMoments.calibrated(question, 1.0, _DELTA)
        made = mechanism if factor == 1.0 else mechanism.weaker(factor)
        target = Target(made, (_person(1.0), _person(-1.0)), _person(1.0, 1.0), _OTHERS)
        case = mechanism_case(name, releases, target, (1.0, _DELTA), max(500, samples // 40))
        claim = mechanism.released
        assert claim is not None
        cases.append(replace(case, event=claim))
    return cases


def _person(value: float, turn: float = -1.0) -> Maker:
    """Somebody whose features are at the ends of their bounds, each the ``turn`` of the one before."""

    def make(coins: Coins) -> BoundedVectors:
        features = turn ** np.arange(_FEATURES)
        record = np.concatenate([[1.0, 0.0], features, [value]])
        return BoundedVectors(coins, np.tile(_BEYOND * record, (len(coins), 1)))

    return make
