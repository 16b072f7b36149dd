"""One attack: two neighbours, what the adversary sees of them, and the claim."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from privateer_core.accounting.events import Event
from privateer_lab.audit.lower_bounds import Scores

CHANNELS: Final = "channels"
"""Stands for a mechanism where what is attacked belongs to none."""
ANY: Final = "any"
"""Stands for a trust model, and for a calibration, where what is attacked is the same under all."""
Sampler = Callable[[int, int], Scores]
"""Scores of ``count`` independent observations of neighbour 0 or 1: (who, count)."""


@dataclass(frozen=True)
class Case:
    """A claim, and how to attack it.

    Attributes
    ----------
    name
        Name of the attack.
    mechanism
        Class of the mechanism, or name of the algorithm, by which attacks are chosen on the command line.
    model, calibration
        Trust model and calibration.
    epsilon, delta
        The claim, of which ``event`` is the whole curve.
    sample
        Larger scores speak for neighbour 0.
    count
        Observations of each neighbour.
    unsafe
        Whether the accountant finds that the claim, a paper's, does not hold: experiments that make it run in
        simulation alone, and an attack should break it.
    """

    name: str
    mechanism: str
    model: str
    calibration: str
    epsilon: float
    delta: float
    event: Event
    sample: Sampler
    count: int
    unsafe: bool = False
