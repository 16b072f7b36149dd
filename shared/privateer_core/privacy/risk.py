"""Risks of a certificate's claims for a participant: the success probabilities of an adversary's guesses."""

import math
from typing import Final

import msgspec

from privateer_core.accounting.accountant import event_delta
from privateer_core.accounting.events import Event, Parallel
from privateer_core.privacy.certificate import Certificate, Claim

_N_EPSILONS: Final = 8
"""Number of steps of epsilon, from 0 to the claim's, of which the best bound counts: each is valid."""


class Risk(msgspec.Struct, frozen=True):
    """Upper bounds of the success of attacks on a participant."""

    # adversary, protects: who attacks, and the part of the participant's record, as in the claim
    adversary: str
    protects: str
    # largest true positive rate minus false positive rate of an attack that distinguishes two records; 1 without a
    # claim
    advantage: float
    guesses: float  # largest probability of a right guess between two equally likely records: (1 + advantage) / 2
    claimed: bool  # whether the certificate has a claim


class Risks(msgspec.Struct, frozen=True):
    """The risk of every claim about the experiment's own participants."""

    experiment: str
    risks: tuple[Risk, ...]


def assess_risks(certificate: Certificate) -> Risks:
    """Return the risks that a certificate leaves."""
    return Risks(certificate.experiment, tuple(map(_claim_risk, certificate.claims)))


def _claim_risk(claim: Claim) -> Risk:
    advantage = _bound_advantage(claim)
    return Risk(claim.adversary, claim.protects, advantage, (1 + advantage) / 2, claim.epsilon is not None)


def _bound_advantage(claim: Claim) -> float:
    """Return an upper bound of the total variation between the adversary's views of any two records.

    It is delta at epsilon 0 of the event's curve, or (e^epsilon - 1 + 2 delta) / (e^epsilon + 1) if that is smaller,
    which follows from epsilon and delta alone (Kairouz, Oh and Viswanath 2015).
    """
    if claim.epsilon is None:
        return 1.0
    small = math.exp(-claim.epsilon)
    advantage = (1 - small + 2 * claim.delta * small) / (1 + small)
    if claim.event is not None:
        advantage = min(advantage, _event_delta(claim.event) + claim.sampling)
    return min(1.0, advantage)


def reconstruction_probability(claim: Claim, candidates: int) -> float:
    """Return the largest probability of a right guess among several equally likely records of a participant.

    Let P_i be the law of the view of record i, E_i the outcomes with the guess i, and s the mean of P_i(E_i).
    For every epsilon with its delta, and all j, P_i(E_i) <= e^epsilon P_j(E_i) + delta. Summed over all pairs this is
    k (1 - s) >= (k - 1) e^-epsilon (k s - k delta), so s <= (e^epsilon + (k - 1) delta) / (e^epsilon + k - 1). With two
    candidates and epsilon 0 that is ``guesses``; randomized response over k symbols attains it. It is the average over
    a uniform prior of what Balle, Cherubin and Hayes (2022) call reconstruction robustness.

    candidates: number of equally likely records, 2 or more.
    """
    if claim.epsilon is None:
        return 1.0
    n_others = candidates - 1
    points = list_certified_points(claim)
    return min(1.0, *((math.exp(e) + n_others * delta) / (math.exp(e) + n_others) for e, delta in points))


def list_certified_points(claim: Claim, n_steps: int = _N_EPSILONS, reach: float = 1.0) -> list[tuple[float, float]]:
    """Return pairs of epsilon and certified delta, up to ``reach`` times the claim's epsilon; none without a claim."""
    if claim.epsilon is None:
        return []
    points = [(claim.epsilon, claim.delta)]
    if claim.event is not None:
        epsilons = [reach * claim.epsilon * step / n_steps for step in range(n_steps + 1)]
        points += [(epsilon, _event_delta(claim.event, epsilon) + claim.sampling) for epsilon in epsilons]
    return points


def _event_delta(event: Event, epsilon: float = 0.0) -> float:
    """Return delta at an epsilon; of rounds with different participants, the largest delta counts."""
    if isinstance(event, Parallel):
        return max(_event_delta(group_event, epsilon) for group_event in event.events)
    return event_delta(event, epsilon)
