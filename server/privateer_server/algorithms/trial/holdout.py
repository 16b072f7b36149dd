"""What the policy gains over the best constant arm, which a share of the slots plays."""

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.design import Design
from privateer_server.algorithms.trial.effects import AverageEffects, average_effects
from privateer_server.algorithms.trial.evidence import Epoch, Evidence, begin

Array = NDArray[np.float64]


def hold_out(alpha: float, people: float, share: float) -> Evidence:
    """Evidence of nothing, of two groups: ``share`` of the slots play a constant arm, the others the policy."""
    return begin(Design(alpha, people, np.array([share, 1 - share]), np.ones(1)))


def everybody(held: tuple[Array, Array], others: tuple[Array, Array], epoch: Epoch, share: float) -> Epoch:
    """Add up segments and arms of the two groups of one release.

    Parameters
    ----------
    held, others
        Positive hits and hits of each group's slots, of any shape: cells (segment, arm) of the named layout.
    epoch
        Where they come from: people, what is kept, and the noise in each cell.
    share
        Probability of a slot to be held out.
    """
    positive, hits = (np.array([[group[part].sum() for group in (held, others)]]) for part in (0, 1))
    segments = len(epoch.hits)
    cells = held[0].size
    shares = np.array([[share, 1 - share]])
    return Epoch(epoch.people, positive, hits, epoch.keep, segments * epoch.other, cells * epoch.noise, shares)


def gain(evidence: Evidence) -> AverageEffects:
    """Mean reward of people whom the policy serves, less that of those who get the constant arm; shape (1,) each."""
    return average_effects(evidence)
