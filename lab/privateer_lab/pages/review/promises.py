"""The promise to a person, and what it leaves an attacker, in figures and in words."""

import math
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from privateer_core.portable import round_up
from privateer_core.privacy.certificate import Certificate, Verdict, recompute
from privateer_core.privacy.certificate import Claim as Certified
from privateer_core.privacy.risk import reconstruction, risks
from privateer_lab.figures import percent
from privateer_lab.pages.templates import exact

CANDIDATES: Final = (2, 10, 100)
"""Numbers of records among which an attacker guesses."""


class Guess(msgspec.Struct, frozen=True):
    """The chance that an attacker guesses right."""

    candidates: int  # equally likely records, one of which is the person's
    blind: float  # how often a guess without any report is right
    at_most: float  # how often the best attack is right at most


class StatedClaim(msgspec.Struct, frozen=True):
    """One claim of a certificate, recomputed."""

    cohort: str  # the source whose people it is about; empty for the experiment's own
    # against, about, epsilon, delta, proof, exact: as in the certificate; an epsilon of None claims nothing
    against: str
    about: str
    epsilon: float | None
    delta: float
    proof: str
    exact: bool
    # found, holds: delta as recomputed from the event, and whether the claim stands
    found: float
    holds: bool
    advantage: float  # of membership: the true positive rate less the false positive rate of the best attack, at most
    guesses: tuple[Guess, ...]  # reconstruction: how often records are guessed
    words: str  # the claim in plain words


def claims(certificates: Mapping[str, Certificate]) -> tuple[StatedClaim, ...]:
    """Return the claims of an experiment's certificates."""
    return tuple(one for cohort, certificate in certificates.items() for one in _claims(cohort, certificate))


def promised(first: Mapping[str, Certified | StatedClaim]) -> str:
    """Say what people are promised, by the first claim of each cohort: people of sources may be promised less."""
    own = first[""]
    others = {cohort: _figures(one) for cohort, one in first.items() if _figures(one) != _figures(own)}
    own_words = f"promised {_figures(own)}, against {own.against}"
    if not others:
        return f"Each person is {own_words}"
    of_sources = (f"those of {one} {said}" for one, said in others.items())
    return "; ".join([f"People of no source are {own_words}", *of_sources])


def _figures(claim: Certified | StatedClaim) -> str:
    if claim.epsilon is None:
        return "nothing"
    return f"epsilon {exact(claim.epsilon)}" + (f", delta {exact(claim.delta)}" if claim.delta else "")


def _claims(cohort: str, certificate: Certificate) -> Iterator[StatedClaim]:
    left = risks(certificate).risks
    for claim, verdict, risk in zip(certificate.claims, recompute(certificate), left, strict=True):
        guesses = tuple(Guess(k, 1 / k, reconstruction(claim, k)) for k in CANDIDATES)
        yield StatedClaim(
            cohort=cohort,
            against=claim.against,
            about=claim.about,
            epsilon=claim.epsilon,
            delta=claim.delta,
            proof=verdict.proof,
            exact=verdict.exact,
            found=verdict.found,
            holds=verdict.holds,
            advantage=risk.advantage,
            guesses=guesses,
            words=_words(claim, verdict, guesses),
        )


def _words(claim: Certified, verdict: Verdict, guesses: tuple[Guess, ...]) -> str:
    if claim.epsilon is None:
        proof = claim.proof[:1].upper() + claim.proof[1:]
        return f"{proof}. Somebody in this place may know everything about the person's record."
    but = f", but for a probability of {exact(claim.delta)}" if claim.delta else ""
    times = f"{round_up(math.exp(claim.epsilon), 3):,.6g} times"
    likely = f"What they see is at most {times} as probable with a person's own record as with any other{but}."
    first = guesses[0]
    named = (
        f"Somebody who knows everything else, and for whom {first.candidates} records are equally likely, names the "
        f"right one in at most {percent(first.at_most)} of all cases; a blind guess does in {percent(first.blind)}."
    )
    fails = [] if verdict.holds else ["THE CLAIM DOES NOT HOLD: what was recomputed is above it."]
    return " ".join([likely, named, *fails])
