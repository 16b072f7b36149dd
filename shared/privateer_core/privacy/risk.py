"""Translates a certificate's claims for a person: how often somebody who is curious guesses right."""

import math
from functools import lru_cache
from typing import Final

import msgspec

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Parallel
from privateer_core.privacy.certificate import Certificate, Claim

_KEPT: Final = 4096
"""Deltas of events that are kept: everybody may ask, and compositions take time."""
_STEPS: Final = 8
"""Epsilons of a curve, from 0 to the claim's, of which the best for the person counts: each of them holds."""


class Risk(msgspec.Struct, frozen=True):
    """The most that the best attack on one person achieves."""

    # against, about: who is curious, and about which part of a person's record, as in the claim
    against: str
    about: str
    # how much more often the attacker says "this record" when it is that record than when it is another one: the true
    # positive rate less the false positive rate, for every attack and any two records. 1 where nothing is claimed.
    advantage: float
    # how often the attacker is right at most who holds both records for equally likely: (1 + advantage) / 2
    guesses: float
    claimed: bool  # whether anything is claimed


class Risks(msgspec.Struct, frozen=True):
    """The risk of every claim against the experiment's own people."""

    experiment: str
    risks: tuple[Risk, ...]


def risks(certificate: Certificate) -> Risks:
    """Return the risks that a certificate leaves."""
    return Risks(certificate.experiment, tuple(map(_risk, certificate.claims)))


def _risk(claim: Claim) -> Risk:
    advantage = _advantage(claim)
    return Risk(claim.against, claim.about, advantage, (1 + advantage) / 2, claim.epsilon is not None)


def _advantage(claim: Claim) -> float:
    """Return the total variation between what is seen of any two records, rounded up.

    That is delta at epsilon 0, where the curve of the event is better than (epsilon, delta) alone. From these follows
    (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) (Kairouz, Oh and Viswanath 2015), which holds whatever the curve.
    """
    if claim.epsilon is None:
        return 1.0
    small = math.exp(-claim.epsilon)
    found = (1 - small + 2 * claim.delta * small) / (1 + small)
    if claim.event is not None:
        found = min(found, _of_event(claim.event) + claim.sampling)
    return min(1.0, found)


def reconstruction(claim: Claim, candidates: int) -> float:
    """Return how often somebody is right at most who guesses which of several equally likely records is the person's.

    Let P_i be what is seen of record i, E_i the outcomes for which the attacker says i, and s the mean of P_i(E_i).
    For every epsilon with its delta, and all j, P_i(E_i) <= e^epsilon P_j(E_i) + delta. Summed over all pairs this is
    k (1 - s) >= (k - 1) e^-epsilon (k s - k delta), so s <= (e^epsilon + (k - 1) delta) / (e^epsilon + k - 1). With two
    candidates and epsilon 0 that is ``guesses``; randomized response over k symbols attains it. It is the average over
    a uniform prior of what Balle, Cherubin and Hayes (2022) call reconstruction robustness.

    candidates: how many records are equally likely beforehand, 2 or more.
    """
    if claim.epsilon is None:
        return 1.0
    others = candidates - 1
    points = [(claim.epsilon, claim.delta)]
    if claim.event is not None:
        tried = [claim.epsilon * step / _STEPS for step in range(_STEPS + 1)]
        points += [(epsilon, _of_event(claim.event, epsilon) + claim.sampling) for epsilon in tried]
    return min(1.0, *((math.exp(e) + others * delta) / (math.exp(e) + others) for e, delta in points))


def _of_event(event: Event, epsilon: float = 0.0) -> float:
    """Return delta at an epsilon; of rounds with other people in each the worst counts, and most are alike."""
    if isinstance(event, Parallel):
        return max(_of_event(one, epsilon) for one in event.events)
    return _of_one(event, epsilon)


@lru_cache(maxsize=_KEPT)
def _of_one(event: Event, epsilon: float) -> float:
    return account(event).delta(epsilon)
