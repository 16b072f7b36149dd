"""A round's release as the statistics of a trial take it."""

import numpy as np
from numpy.typing import NDArray

from privateer.algorithms.trial import TrialPolicy
from privateer.contributions import CellHits
from privateer_server.algorithms.trial.evidence import Epoch

Array = NDArray[np.float64]


def epoch_of(policy: TrialPolicy, release: CellHits, guardrail: int | None = None) -> Epoch:
    """Return what a round adds to the evidence, about rewards or about a guardrail.

    Where reports name the arm, other people hit an arm as often whatever its share. What they are expected to add is
    subtracted, and how much that varies is noise: as of a curator's pairs, so that everything after is the same.
    """
    people, shares = _asked(policy, release, guardrail), policy.arm_shares
    positive, hits = _cells(policy, release, guardrail)
    # Every answer to guardrails has keys of its own, and adds as much noise.
    other, noise = policy.answers * release.other, policy.answers * release.noise
    if not policy.fresh_coins:
        return Epoch(people, positive, hits, release.gain, other, noise, shares)
    false = people * other
    return Epoch(people, positive - false, hits - 2 * false, release.gain, 0.0, noise + false * (1 - other), shares)


def _cells(policy: TrialPolicy, release: CellHits, guardrail: int | None) -> tuple[Array, Array]:
    """Return hits that are positive, of the reward or a guardrail, and all hits; shape (segments, arms) each."""
    segments, arms = policy.arm_shares.shape
    if policy.questions > 1:
        asked = slice(arms * _turn(guardrail), arms * (_turn(guardrail) + 1))
        return release.positive[:, asked], release.hits[:, asked]
    order = (segments, arms, policy.answers) if policy.fresh_coins else (segments, policy.answers, arms)
    axis = 2 if policy.fresh_coins else 1
    positive, hits = release.positive.reshape(order), release.hits.reshape(order)
    if guardrail is not None:
        yes = np.flatnonzero(np.arange(policy.answers) >> guardrail & 1)
        positive = np.take(hits, yes, axis=axis)
    return positive.sum(axis=axis), hits.sum(axis=axis)


def _asked(policy: TrialPolicy, release: CellHits, guardrail: int | None) -> float:
    """Return how many people were asked for the reward or for the guardrail: all, or those whose coins say so."""
    if policy.questions == 1:
        return float(release.reports)
    questions = release.counts[0].reshape(policy.questions, -1).sum(axis=1)
    return float(questions[_turn(guardrail)])


def _turn(guardrail: int | None) -> int:
    return 0 if guardrail is None else 1 + guardrail


def excess_of(policy: TrialPolicy, release: CellHits) -> tuple[Array, Array]:
    """Return people of each arm beyond what the shares say, and its variance if nobody is lost; (arms,) each.

    Coins tell where reports carry them; as one hash gives the arm in all segments, the mean over segments varies no
    more than a binomial of the mean share. Otherwise hits tell, with their noise.
    """
    shares = policy.arm_shares
    if not policy.fresh_coins:
        share, people = shares.mean(axis=0), float(release.reports)
        counts = release.counts.mean(axis=0).reshape(policy.questions, -1).sum(axis=0)
        return counts - people * share, people * share * (1 - share)
    epoch = epoch_of(policy, release)
    by_segment = epoch.hits.sum(axis=1, keepdims=True)
    spread = (np.maximum(by_segment, 0.0) * shares * (1 - shares)).sum(axis=0)
    # This is the variance of an arm's hits less its share of all arms' hits.
    noise = 2 * epoch.noise * (np.square(1 - shares) + np.square(shares) * (shares.shape[1] - 1)).sum(axis=0)
    return (epoch.hits - by_segment * shares).sum(axis=0), spread + noise
