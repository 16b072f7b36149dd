"""What a certificate's claims mean to a person: how often somebody who is curious guesses right."""

import math
from functools import lru_cache
from typing import Final

import msgspec

from privateer.accounting.accountant import account
from privateer.accounting.events import Event, Parallel
from privateer.certificate import Certificate, Claim

_KEPT: Final = 4096
"""Events whose advantage is kept: everybody may ask, and compositions take time."""


class Risk(msgspec.Struct, frozen=True):
    """What the best attack on one person achieves at most.

    Attributes
    ----------
    against, about
        Who is curious, and about which part of a person's record, as in the claim.
    advantage
        How much more often the attacker says "this record" when it is that record than when it is another one: the
        true positive rate less the false positive rate, for every attack and any two records. 1 where nothing is
        claimed.
    guesses
        How often the attacker is right at most who holds both records for equally likely: (1 + advantage) / 2.
    claimed
        Whether anything is claimed.
    """

    against: str
    about: str
    advantage: float
    guesses: float
    claimed: bool


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


def _of_event(event: Event) -> float:
    """Return delta at epsilon 0; of rounds with other people in each the worst counts, and most are alike."""
    if isinstance(event, Parallel):
        return max(map(_of_event, event.events))
    return _of_one(event)


@lru_cache(maxsize=_KEPT)
def _of_one(event: Event) -> float:
    return account(event).delta(0.0)
