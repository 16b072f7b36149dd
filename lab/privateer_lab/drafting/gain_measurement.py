"""The last participants of a draft, who measure what choosing by features gains: how wide their interval would be."""

import math
from statistics import NormalDist
from typing import Final

from privateer_core.policies.gain_policy import COMPARED_COINS, N_KEYS
from privateer_core.primitives.public_coins import UNIT
from privateer_core.privacy.information import AskedCell, measure_information
from privateer_core.privacy.terms import calibrate
from privateer_core.spec.arms import ArmsSpec

_CONFIDENCE_QUANTILE: Final = NormalDist().inv_cdf(0.975)


def gain_half_width(spec: ArmsSpec) -> float:
    """Return the half-width of the 95 % interval of the measured gain, in the reward's unit, if rewards are about 1/2.

    ``spec.gain_people`` must not be 0.
    """
    question = spec.gain_question(N_KEYS, 0)
    mechanism = calibrate(spec.privacy, spec.gain_people, question).mechanism
    # Policy and best single option usually differ; their participants then report on a key each.
    cell = AskedCell(question, spec.gain_people, key=COMPARED_COINS / UNIT)
    variance = 2 / (4 * measure_information(mechanism, cell) * spec.gain_people)
    return spec.reward.span * _CONFIDENCE_QUANTILE * math.sqrt(variance)


def without_measurement(text: str, reason: str = "") -> str:
    """Make the line of a draft that has participants measure the gain a comment, below a ``reason``."""
    comment = f"# {reason}\n" if reason else ""
    return text.replace("\nevaluation_fraction", f"\n{comment}# evaluation_fraction")
