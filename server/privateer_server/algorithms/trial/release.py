"""A round's release as the statistics of a trial take it."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms.trial import TrialPolicy
from privateer_core.contributions import CellHits
from privateer_server.algorithms.trial.evidence import Epoch

Array = NDArray[np.float64]


def epoch_of(policy: TrialPolicy, release: CellHits, fact: int = 0) -> Epoch:
    """Return what a round adds to the evidence about segments, of the reward (0) or of a guardrail.

    Where reports name the arm, other people hit an arm as often whatever its share. What they are expected to add is
    subtracted, and how much that varies is noise: as of a curator's pairs, so that everything after is the same.
    """
    if policy.questions:
        return question_of(policy, release, fact)
    people, shares = float(release.reports), policy.arm_shares
    positive, hits = _cells(policy, release, fact)
    # Every answer to guardrails has keys of its own, and adds as much noise.
    other, noise = policy.answers * release.other, policy.answers * release.noise
    if not policy.fresh_coins:
        return Epoch(people, positive, hits, release.gain, other, noise, shares)
    false = people * other
    return Epoch(people, positive - false, hits - 2 * false, release.gain, 0.0, noise + false * (1 - other), shares)


def everybody_of(policy: TrialPolicy, release: CellHits, fact: int = 0) -> Epoch:
    """Return what a round adds to the evidence about everybody, as about one segment."""
    return question_of(policy, release, fact, everybody=True)


def members_of(policy: TrialPolicy, release: CellHits) -> Epoch:
    """Return what people add who were asked for their segment: of all arms together, in the place of each."""
    epoch = question_of(policy, release, None)
    positive, hits = (
        np.broadcast_to(cells.sum(axis=1, keepdims=True), cells.shape) for cells in (epoch.positive, epoch.hits)
    )
    return replace(epoch, positive=positive, hits=hits, shares=np.ones_like(epoch.shares))


def question_of(policy: TrialPolicy, release: CellHits, fact: int | None, *, everybody: bool = False) -> Epoch:
    """Return what people told who were asked one question."""
    question = [(one.fact, one.everybody) for one in policy.questions].index((fact, everybody))
    shares = policy.arms_asked(question)
    rows = slice(-1, None) if everybody else slice(len(shares))
    arms = slice(shares.shape[1] * question, shares.shape[1] * (question + 1))
    people = float(release.counts[0, arms].sum())
    cells = (release.positive[rows, arms], release.hits[rows, arms])
    return Epoch(people, *cells, release.gain, release.other, release.noise, shares)


def _cells(policy: TrialPolicy, release: CellHits, fact: int) -> tuple[Array, Array]:
    """Return hits that are positive, of the reward or a guardrail, and all hits; shape (segments, arms) each."""
    segments, arms = policy.arm_shares.shape
    order = (segments, arms, policy.answers) if policy.fresh_coins else (segments, policy.answers, arms)
    axis = 2 if policy.fresh_coins else 1
    positive, hits = release.positive.reshape(order), release.hits.reshape(order)
    if fact:
        yes = np.flatnonzero(np.arange(policy.answers) >> (fact - 1) & 1)
        positive = np.take(hits, yes, axis=axis)
    return positive.sum(axis=axis), hits.sum(axis=axis)


def excess_of(policy: TrialPolicy, release: CellHits) -> tuple[Array, Array]:
    """Return people of each arm beyond what the shares say, and its variance if nobody is lost; (arms,) each.

    Coins tell where reports carry them; as one hash gives the arm in all segments, the mean over segments varies no
    more than a binomial of the mean share. Otherwise hits tell, with their noise.
    """
    shares = policy.arm_shares
    if not policy.fresh_coins:
        share, people = shares.mean(axis=0), float(release.reports)
        counts = release.counts[: len(shares)].mean(axis=0).reshape(-1, shares.shape[1]).sum(axis=0)
        return counts - people * share, people * share * (1 - share)
    epoch = epoch_of(policy, release)
    by_segment = epoch.hits.sum(axis=1, keepdims=True)
    spread = (np.maximum(by_segment, 0.0) * shares * (1 - shares)).sum(axis=0)
    # This is the variance of an arm's hits less its share of all arms' hits.
    noise = 2 * epoch.noise * (np.square(1 - shares) + np.square(shares) * (shares.shape[1] - 1)).sum(axis=0)
    return (epoch.hits - by_segment * shares).sum(axis=0), spread + noise
