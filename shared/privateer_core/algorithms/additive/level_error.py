"""How exactly reports can tell the mean reward of one arm, before anybody is asked."""

import math
from typing import Final

from privateer_core.mechanisms.cell_pairs import CellPairs
from privateer_core.mechanisms.named_symbol import NamedSymbol
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors
from privateer_core.primitives.questions import FeatureMeans
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.arms import ArmsSpec

_SHARE: Final = 0.6
"""Share of the question about nothing but the arm, where little is known."""

_PARTS: Final = 2
"""Parts of the question about a feature, where little is known."""


def level_error(spec: ArmsSpec, question: FeatureMeans) -> float:
    """Return the standard deviation of noise in the mean reward of an arm, from 0 to 1, after all people.

    ``question`` is what a round asks. Every arm is had by as many. Rounds have the noise of the largest one, so that it
    is a little more in fact; how rewards themselves vary is not in it.
    """
    largest = spec.largest_batch()
    terms = calibrate(spec.privacy, largest, question, spec.fewest(largest), spec.reports)
    mechanism, rounds = terms.mechanism, [one.batch for one in spec.planned_rounds()]
    if isinstance(mechanism, CentralVectors):
        noise = (mechanism.standard_deviation * mechanism.ball.step) ** 2 / _SHARE
        return spec.arm_count * math.sqrt(noise / sum(people**2 for people in rounds))
    if isinstance(mechanism, CellPairs):
        noise = (1 + question.ball.below**2) * mechanism.noise * question.features * _PARTS
        return spec.arm_count * math.sqrt(noise / sum(people**2 for people in rounds))
    assert isinstance(mechanism, NamedSymbol)
    response, people = mechanism.response, sum(rounds)
    if mechanism.named:
        noise = response.other * (1 + question.ball.below**2) / response.gain**2
    else:
        noise = 1 / (mechanism.buckets * response.gain**2)
    return spec.arm_count * math.sqrt(noise / (_SHARE * people))
