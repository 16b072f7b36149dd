"""What an experiment claims, as a document that anybody can check with nothing else at hand."""

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from privateer.accounting.accountant import account
from privateer.accounting.curator import SAMPLING, SENSITIVITY
from privateer.accounting.events import Event, Gaussian, Parallel, Pure, ShuffledResponse, check_event
from privateer.errors import SpecError
from privateer.terms import Terms

FORMAT: Final = "privateer/certificate/1"
RECORD: Final = "context, arm and reward"
_COLLUDING: Final = "server and shuffler"
_WORDS_MAX: Final = 1000
"""Characters of a text: words of a certificate are shown on screens."""
_ROUNDING: Final = 1 + 1e-6
"""Delta may be so much above its claim: other machines' last digits."""


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One person's privacy against one adversary.

    Attributes
    ----------
    against
        Who is curious: everybody on their own, or together.
    epsilon, delta
        The claim; an epsilon of None claims nothing.
    event
        What the adversary sees of a person, for the accountant; each person is in one round. None: the record itself.
    sampling
        What the sampler of noise may add to delta.
    proof, exact
        Why the claim holds, and whether the event's curve is exact or an upper bound.
    about
        What of a person's record the claim is about.
    """

    against: str
    epsilon: float | None
    delta: float
    event: Event | None
    sampling: float
    proof: str
    exact: bool
    about: str = RECORD


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Claims about an experiment. ``assumes`` says in words what no computation can check."""

    format: str
    experiment: str
    claims: tuple[Claim, ...]
    assumes: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """A claim recomputed: the delta found at its epsilon, by which proof, and whether that is within the claim.

    The proof and whether it is exact are the verifier's own: a document may say anything.
    """

    against: str
    about: str
    epsilon: float | None
    delta: float
    found: float
    proof: str
    exact: bool
    holds: bool


ASSUMES: Final = {
    "local": ("devices run the client library",),
    "shuffle": (
        "devices run the client library",
        "the shuffler does not collude with the server",
        "so many reports of every batch come from honest people as the event says",
    ),
    "central": ("the server keeps records to itself, and its noise comes from the operating system",),
    "none": ("the server keeps records to itself",),
}
_UNSEEN: Final = "nobody who gets reports, or reads what is published, sees which arm a person got"
"""Where it is not assumed the claims hold against somebody who does see it."""
_SEES: Final = "everybody together, who see arms too"
_BESIDE_THE_ARM: Final = "reward, and context among bins where the report's coins give the arm"


def certify(experiment: str, epsilon: float, delta: float, rounds: Iterable[Terms]) -> Certificate:
    """The certificate of an experiment with these terms, round by round; a person is in one round.

    Parameters
    ----------
    epsilon, delta
        The spec's promise; epsilon is infinite under the trust model ``none``.
    """
    distinct = sorted(set(rounds), key=repr)
    model = distinct[0].model
    claims = tuple(_CLAIMS[model](distinct, epsilon, delta))
    return Certificate(FORMAT, experiment, claims, _assumes(model, distinct))


def _assumes(model: str, rounds: list[Terms]) -> tuple[str, ...]:
    counts_on_it = model in ("shuffle", "central") and not all(terms.arm_in_key for terms in rounds)
    return (*ASSUMES[model], _UNSEEN) if counts_on_it else ASSUMES[model]


def bounded_alone(certificate: Certificate, local_epsilon: float) -> Certificate:
    """The same for rounds to come under shuffle, whose reports' own epsilon is not known yet, but for this bound."""
    alone = claim_of(_COLLUDING, local_epsilon, 0.0, {Pure(local_epsilon)})
    claims = tuple(alone if claim.against == _COLLUDING else claim for claim in certificate.claims)
    return msgspec.structs.replace(certificate, claims=claims)


def claim_of(against: str, epsilon: float, delta: float, events: set[Event], sampling: float = 0.0) -> Claim:
    """A claim about a person who is in one round, whichever: ``events`` are what the rounds' adversary sees."""
    ordered = tuple(sorted(events, key=repr))
    event = ordered[0] if len(ordered) == 1 else Parallel(ordered)
    curve = account(event)
    return Claim(against, epsilon, delta, event, sampling, curve.proof, curve.exact)


def nothing_claimed(against: str) -> Claim:
    """No claim, against somebody who sees the record."""
    return Claim(against, None, 1.0, None, 0.0, "nothing is claimed: it sees the record", exact=True)


def _local(rounds: list[Terms], epsilon: float, _: float) -> list[Claim]:
    events: set[Event] = {Pure(terms.local_epsilon) for terms in rounds}
    alone = claim_of("everybody together, who see no arms", epsilon, 0.0, events)
    return [alone, msgspec.structs.replace(alone, against=_SEES, about=_BESIDE_THE_ARM)]


def _shuffle(rounds: list[Terms], epsilon: float, delta: float) -> list[Claim]:
    batch: set[Event] = {ShuffledResponse(t.local_epsilon, t.symbols, t.honest) for t in rounds}
    alone: set[Event] = {Pure(terms.local_epsilon) for terms in rounds}
    local_epsilon = max(terms.local_epsilon for terms in rounds)
    return [claim_of("the server", epsilon, delta, batch), claim_of(_COLLUDING, local_epsilon, 0.0, alone)]


def _central(rounds: list[Terms], epsilon: float, delta: float) -> list[Claim]:
    events: set[Event] = {Gaussian(terms.standard_deviation, SENSITIVITY) for terms in rounds}
    readers = claim_of("readers of what is published", epsilon, delta, events, SAMPLING)
    return [readers, nothing_claimed("the server")]


def _none(_rounds: list[Terms], _epsilon: float, _delta: float) -> list[Claim]:
    return [nothing_claimed("readers of what is published"), nothing_claimed("the server")]


_CLAIMS: Final = {"local": _local, "shuffle": _shuffle, "central": _central, "none": _none}


def read_certificate(value: Any) -> Certificate:
    """A certificate from what JSON makes of it; it holds nothing else.

    Raises
    ------
    SpecError
        If it is none, of another format, or an event in it is unknown or out of range.
    """
    try:
        certificate = msgspec.convert(value, Certificate)
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:
        raise SpecError(f"not a certificate: {error}", field="certificate", remedy="see docs/privacy.md") from None
    check_certificate(certificate)
    return certificate


def check_certificate(certificate: Certificate) -> None:
    """Refuse a certificate of another format, with unreadable words, or with a claim that is none.

    Raises
    ------
    SpecError
        Naming the field.
    """
    if certificate.format != FORMAT or not certificate.claims:
        raise SpecError(f"not of the format {FORMAT}, or empty", field="certificate", remedy="ask for a new one")
    if len({claim.against for claim in certificate.claims}) < len(certificate.claims):
        raise SpecError("two claims against one adversary", field="certificate.claims", remedy="ask for a new one")
    words = [certificate.experiment, *certificate.assumes]
    words += [text for claim in certificate.claims for text in (claim.against, claim.about, claim.proof)]
    if not all(0 < len(text) <= _WORDS_MAX and text.isprintable() for text in words):
        raise SpecError(
            f"every text must have 1 to {_WORDS_MAX} printable characters",
            field="certificate",
            remedy="ask for a new one",
        )
    for claim in certificate.claims:
        _check_claim(claim)


def _check_claim(claim: Claim) -> None:
    if claim.event is not None:
        check_event(claim.event)
    numbers = (claim.delta, claim.sampling, 0.0 if claim.epsilon is None else claim.epsilon)
    if not all(math.isfinite(number) and number >= 0 for number in numbers):
        raise SpecError("a number out of range", field="certificate.claims", remedy="ask for a new one")


def recompute(certificate: Certificate) -> list[Verdict]:
    """Every claim recomputed from its event alone."""
    return [_verdict(claim) for claim in certificate.claims]


def _verdict(claim: Claim) -> Verdict:
    claimed = (claim.against, claim.about, claim.epsilon, claim.delta)
    if claim.epsilon is None or claim.event is None:
        nothing = "nothing is computed: the adversary sees the record"
        return Verdict(*claimed, 1.0, nothing, True, claim.delta >= 1.0)
    curve = account(claim.event)
    found = curve.delta(claim.epsilon) + claim.sampling
    holds = found <= claim.delta * _ROUNDING and (curve.exact or not claim.exact)
    return Verdict(*claimed, found, curve.proof, curve.exact, holds)
