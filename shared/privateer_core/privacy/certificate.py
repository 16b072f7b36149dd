"""The certificate of an experiment's privacy, a document that anybody can check with nothing else at hand."""

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import EPSILON_MAX, Event, Parallel, Pure, Repeated, check_event
from privateer_core.errors import SpecError
from privateer_core.portable import OTHER_DIGITS
from privateer_core.prepared_types import prepared
from privateer_core.privacy.terms import Terms, composed
from privateer_core.privacy.trust import TIGHT
from privateer_core.spec.privacy import Privacy

FORMAT: Final = "privateer/certificate/2"
RECORD: Final = "the whole record"
JOINT: Final = "the whole record, as everybody else together sees it: what is published, and what they get themselves"
_COLLUDING: Final = "server and shuffler"
_FOR_THE_BATCH: Final = "together they see everybody's own noisy vector, whose noise is for the batch"
_SEE_NO_ARMS: Final = "who see no arms"
_SEE_ARMS: Final = "who see arms too"
_UNSEEN: Final = "nobody who gets reports, or reads what is published, sees which arm a person got"
_WHATEVER_THE_ARM: Final = (
    "whether an honest person's report is in a batch does not depend on the arm that they got, and nobody chooses by "
    "arm whose reports to drop or to falsify"
)
_BESIDE_THE_ARM: Final = "reward, and context among bins where the report's coins give the arm"
_WORDS_MAX: Final = 1000
"""Characters of a text: words of a certificate are shown on screens."""
_COUNT_MAX: Final = 64
"""Claims of a certificate, and its assumptions."""
_PARTS: Final = 1000
"""Parts of 1 to which an epsilon that follows from a batch is rounded up: other machines compute other last digits."""
_REMEDY: Final = "ask for a new one"


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim on one person's privacy against one adversary."""

    against: str  # who is curious
    # epsilon, delta: the claim; an epsilon of None claims nothing
    epsilon: float | None
    delta: float
    # what the adversary sees of a person, for the accountant: each of their reports is in one round. None: the record
    # itself.
    event: Event | None
    # what the sampler of noise may add to delta. Where several reports share a promise, their allotment has room for
    # it.
    sampling: float
    # proof, exact: why the claim holds, and whether the event's curve is exact or an upper bound
    proof: str
    exact: bool
    about: str = RECORD  # which part of a person's record the claim is about


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Claims about an experiment. ``assumes`` says in words what no computation can check."""

    format: str
    experiment: str
    claims: tuple[Claim, ...]
    assumes: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """A claim recomputed: the delta that was found at its epsilon, why, and whether it is within the claim.

    The verifier fills in ``proof`` and ``exact`` itself, since a document may say anything.
    """

    against: str
    about: str
    epsilon: float | None
    delta: float
    found: float
    proof: str
    exact: bool
    holds: bool


def certify(experiment: str, privacy: Privacy, rounds: Iterable[Terms], *, planned: bool = False) -> Certificate:
    """Return the certificate of an experiment with these terms, round by round; each report is in one round.

    privacy: what the people of these rounds are promised.
    planned: whether the terms are only calibrated ahead. What a report alone may cost under a shuffler is then not
        known, but for its bound ``privacy.local_epsilon_max``.
    """
    terms = tuple(rounds)
    claims = (*_promise(privacy, terms), *_beyond_the_promise(privacy, terms, planned))
    return Certificate(FORMAT, experiment, claims, tuple(_assumed(privacy, terms)))


def _assumed(privacy: Privacy, terms: tuple[Terms, ...]) -> Iterator[str]:
    yield from privacy.trust.assumes
    if any(one.mechanism.counts_shares for one in terms):
        yield _WHATEVER_THE_ARM
    reports = max((one.reports for one in terms), default=1)
    if needs_unseen_arms(privacy):
        yield _UNSEEN
    if reports > 1:
        yield f"a device reports {reports} times at most, and once a round"


def needs_unseen_arms(privacy: Privacy) -> bool:
    """Whether the promise holds only as long as nobody who gets reports or releases sees a person's arm."""
    return privacy.arms == "hidden" and privacy.trust.hides_arms


def _promise(privacy: Privacy, terms: tuple[Terms, ...]) -> list[Claim]:
    """What is claimed against the adversary whom the promise is about."""
    row = privacy.trust
    events = {event for one in terms for event in _one_of(one.event)}
    seen = {event for event in events if event is not None}
    # A round that reveals the record leaves nothing to claim, whatever the other rounds reveal.
    if not row.promises or len(seen) < len(events):
        return [_nothing_claimed(row.reader)]
    share, sampling = terms[0].allotment, max(one.mechanism.sampling for one in terms)
    if share:
        seen, sampling = {composed(share, seen)}, 0.0
    if privacy.as_alone:
        return [_amplified(f"{row.reader}, {_SEE_NO_ARMS}", privacy, seen)]
    claim = _claim(row.reader, privacy.bound, _delta(privacy, terms), seen, sampling)
    if row.curated:
        # What the person got is a function of their own record: nothing is claimed against those who see it.
        return [replace(claim, about=JOINT)]
    if row.batched or not any(one.mechanism.coins_choose for one in terms):
        return [claim]
    # The coins that chose the arm travel with the report: together with the arm they narrow the context down.
    unseen, seen_too = (f"{row.reader}, {who}" for who in (_SEE_NO_ARMS, _SEE_ARMS))
    return [replace(claim, against=unseen), replace(claim, against=seen_too, about=_BESIDE_THE_ARM)]


def _one_of(event: Event | None) -> tuple[Event | None, ...]:
    """Return the events of which a person is in one."""
    return event.events if isinstance(event, Parallel) else (event,)


def _delta(privacy: Privacy, terms: tuple[Terms, ...]) -> float:
    """The promised delta; the true one where a calibration that is not ours does not keep the promise."""
    if privacy.trust.calibration != TIGHT and not all(one.holds for one in terms):
        return max(one.true_delta for one in terms)
    return privacy.delta


def _beyond_the_promise(privacy: Privacy, terms: tuple[Terms, ...], planned: bool) -> Iterator[Claim]:
    """What is claimed if those whom the promise trusts are curious after all."""
    if privacy.trust.shuffled:
        alone = {one.mechanism.local_epsilon for one in terms}
        if not math.isfinite(max(alone)):
            yield _nothing_claimed(_COLLUDING, _FOR_THE_BATCH)
        else:
            yield from _of_reports(privacy, terms, {privacy.alone_most} if planned else alone)
    if privacy.trust.curated:
        yield _nothing_claimed("the server")


def _of_reports(privacy: Privacy, terms: tuple[Terms, ...], alone: Collection[float]) -> Iterator[Claim]:
    """What reports claim by themselves, no matter who permuted them: a batch is a function of them.

    Where their coins chose the arms, they narrow the context down together with the arm, as where nobody shuffles.
    """
    claim = _alone(alone, terms[0].reports)
    yield replace(claim, against=f"{_COLLUDING}, {_SEE_NO_ARMS}") if privacy.as_alone else claim
    if not privacy.arm_in_key and claim.event is not None and any(one.mechanism.coins_choose for one in terms):
        yield replace(claim, against=f"{_COLLUDING}, {_SEE_ARMS}", about=_BESIDE_THE_ARM)


def _amplified(against: str, privacy: Privacy, events: Collection[Event]) -> Claim:
    """What a batch makes of reports that keep the promise alone: the least epsilon at its delta, rounded up."""
    found = max(account(event).epsilon(privacy.delta) for event in events)
    return _claim(against, min(privacy.bound, math.ceil(found * _PARTS) / _PARTS), privacy.delta, events)


def _alone(epsilons: Collection[float], reports: int) -> Claim:
    """What is claimed of reports that nobody hides."""
    events: set[Event] = {Pure(epsilon) for epsilon in epsilons}
    together = reports * max(epsilons)
    if together > EPSILON_MAX:
        return _nothing_claimed(_COLLUDING, f"{reports} reports cost an epsilon of {together:g} without a crowd")
    if reports > 1:
        events = {Repeated(Parallel(tuple(sorted(events, key=repr))), reports)}
    return _claim(_COLLUDING, together, 0.0, events)


def _claim(against: str, epsilon: float, delta: float, events: Collection[Event], sampling: float = 0.0) -> Claim:
    """A claim about a person of whom the adversary sees one of ``events``, whichever it is."""
    ordered = tuple(sorted(events, key=repr))
    event = ordered[0] if len(ordered) == 1 else Parallel(ordered)
    curve = account(event)
    return Claim(against, epsilon, delta, event, sampling, curve.proof, curve.exact)


def _nothing_claimed(against: str, why: str = "it sees the record") -> Claim:
    return Claim(against, None, 1.0, None, 0.0, f"nothing is claimed: {why}", exact=True)


def read_certificate(value: Any) -> Certificate:
    """Return the certificate that a JSON value is."""
    try:
        certificate = msgspec.convert(value, prepared(Certificate))
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:
        remedy = "see docs/privacy/certificates.md"
        raise SpecError(f"not a certificate: {error}", field="certificate", remedy=remedy) from None
    check_certificate(certificate)
    return certificate


def check_certificate(certificate: Certificate) -> None:
    """Refuse a certificate of another format, with unreadable words, or with an impossible claim."""
    claims = certificate.claims
    if certificate.format != FORMAT or not claims:
        raise SpecError(f"not of the format {FORMAT}, or empty", field="certificate", remedy=_REMEDY)
    if len({claim.against for claim in claims}) < len(claims):
        raise SpecError("two claims against one adversary", field="certificate.claims", remedy=_REMEDY)
    if max(len(claims), len(certificate.assumes)) > _COUNT_MAX:
        raise SpecError(f"has more than {_COUNT_MAX} claims or assumptions", field="certificate", remedy=_REMEDY)
    words = [certificate.experiment, *certificate.assumes]
    words += [text for claim in claims for text in (claim.against, claim.about, claim.proof)]
    if not all(0 < len(text) <= _WORDS_MAX and text.isprintable() for text in words):
        readable = f"every text must have 1 to {_WORDS_MAX} printable characters"
        raise SpecError(readable, field="certificate", remedy=_REMEDY)
    for claim in claims:
        if claim.event is not None:
            check_event(claim.event)
        numbers = (claim.delta, claim.sampling, claim.epsilon or 0.0)
        if not all(math.isfinite(number) and number >= 0 for number in numbers):
            raise SpecError("a number is out of range", field="certificate.claims", remedy=_REMEDY)


def recompute(certificate: Certificate) -> list[Verdict]:
    """Recompute every claim from its event alone."""
    return [_verdict(claim) for claim in certificate.claims]


def _verdict(claim: Claim) -> Verdict:
    claimed = (claim.against, claim.about, claim.epsilon, claim.delta)
    if claim.epsilon is None or claim.event is None:
        nothing = "nothing is computed: the adversary sees the record"
        return Verdict(*claimed, 1.0, nothing, exact=True, holds=claim.delta >= 1.0)
    curve = account(claim.event)
    found = curve.delta(claim.epsilon) + claim.sampling
    holds = found <= claim.delta * (1 + OTHER_DIGITS) and (curve.exact or not claim.exact)
    return Verdict(*claimed, found, curve.proof, curve.exact, holds)
