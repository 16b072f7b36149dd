"""A round's release as the statistics of a trial take it."""

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.trial import TrialPolicy
from privateer.contributions import CellHits
from privateer_server.algorithms.trial.evidence import Epoch

Array = NDArray[np.float64]


def epoch_of(policy: TrialPolicy, release: CellHits) -> Epoch:
    """Return what a round adds to the evidence.

    Where reports name the arm, other people hit an arm as often whatever its share. What they are expected to add is
    subtracted, and how much that varies is noise: as of a curator's pairs, so that everything after is the same.
    """
    people, shares = float(release.reports), policy.choice.shares
    if not policy.fresh_coins:
        return Epoch(people, release.positive, release.hits, release.gain, release.other, release.noise, shares)
    false = people * release.other
    positive, hits = (cells.reshape(shares.shape) for cells in (release.positive, release.hits))
    noise = release.noise + false * (1 - release.other)
    return Epoch(people, positive - false, hits - 2 * false, release.gain, 0.0, noise, shares)


def excess_of(policy: TrialPolicy, release: CellHits) -> tuple[Array, Array]:
    """Return people of each arm beyond what the shares say, and its variance if nobody is lost; (arms,) each.

    Coins tell where reports carry them; as one hash gives the arm in all segments, the mean over segments varies no
    more than a binomial of the mean share. Otherwise hits tell, with their noise.
    """
    shares = policy.choice.shares
    if not policy.fresh_coins:
        share, people = shares.mean(axis=0), float(release.reports)
        return release.counts.mean(axis=0) - people * share, people * share * (1 - share)
    epoch = epoch_of(policy, release)
    by_segment = epoch.hits.sum(axis=1, keepdims=True)
    spread = (np.maximum(by_segment, 0.0) * shares * (1 - shares)).sum(axis=0)
    # Of an arm's hits, less its share of all arms' hits.
    noise = 2 * epoch.noise * (np.square(1 - shares) + np.square(shares) * (shares.shape[1] - 1)).sum(axis=0)
    return (epoch.hits - by_segment * shares).sum(axis=0), spread + noise
