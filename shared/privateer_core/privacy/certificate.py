"""The certificate of an experiment's privacy, a self-contained document for public verification."""

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import EPSILON_MAX, Event, Parallel, Pure, Repeated, check_event
from privateer_core.errors import SpecError
from privateer_core.portable import RELATIVE_TOLERANCE
from privateer_core.prepared_types import cache_decoder
from privateer_core.privacy.terms import Terms, compose_reports
from privateer_core.privacy.trust import Crowd, Curator, NoiseOrigin, Recipient
from privateer_core.spec.privacy import Privacy

FORMAT: Final = "privateer/certificate/2"
RECORD: Final = "the whole record"
JOINT: Final = "the whole record, as everybody else together sees it: what is published, and what they get themselves"
_COLLUDERS: Final = "server and shuffler"
_BATCH_NOISE_DETAIL: Final = "together they see everybody's own noisy vector, whose noise is for the batch"
_SHARES_DETAIL: Final = "together they add up the shares of a vote"
_WITHOUT_ARMS: Final = "who see no arms"
_WITH_ARMS: Final = "who see arms too"
_UNSEEN_ARMS_ASSUMPTION: Final = "nobody who gets reports, or reads what is published, sees which arm a person got"
_ARM_INDEPENDENCE_ASSUMPTION: Final = (
    "whether an honest person's report is in a batch does not depend on the arm that they got, and nobody chooses by "
    "arm whose reports to drop or to falsify"
)
_JOINT_ASSUMPTION: Final = "a report is second moments and products of one row, so that no two are opposite"
_RECORD_WITHOUT_ARM: Final = "reward, and context among bins where the report's coins give the arm"
_WORDS_MAX: Final = 1000
"""Largest number of characters of a text in a certificate."""
_COUNT_MAX: Final = 64
"""Largest number of claims of a certificate, and of its assumptions."""
_STEPS: Final = 1000
"""Steps per unit to which an epsilon that follows from a batch is rounded up, since last digits differ by machine."""
_REMEDY: Final = "ask for a new one"


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A claim on a participant's privacy against an adversary."""

    adversary: str
    # epsilon, delta: the claim; an epsilon of None claims nothing
    epsilon: float | None
    delta: float
    # event of the adversary's view of a participant, for the accountant: each report is in one round. None: the
    # adversary sees the record.
    event: Event | None
    # upper bound of the delta that the sampler of noise adds. If several reports share a promise, their allotment
    # includes it.
    sampling: float
    # proof, exact: theorem behind the claim, and whether the event's curve is exact or an upper bound
    proof: str
    exact: bool
    protects: str = RECORD  # part of the participant's record that the claim protects


class Certificate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Claims about an experiment. ``assumes`` lists assumptions that no computation can check."""

    format: str
    experiment: str
    claims: tuple[Claim, ...]
    assumes: tuple[str, ...]


class Verdict(msgspec.Struct, frozen=True):
    """A recomputed claim: its delta at its epsilon, its proof, and whether that delta is within the claim.

    ``proof`` and ``exact`` are the verifier's own, since a document may be wrong.
    """

    adversary: str
    protects: str
    epsilon: float | None
    delta: float
    recomputed_delta: float
    proof: str
    exact: bool
    holds: bool


def certify(experiment: str, privacy: Privacy, rounds: Iterable[Terms], *, planned: bool = False) -> Certificate:
    """Return the certificate of an experiment with these terms, round by round; each report is in one round.

    planned: whether the terms are calibrated ahead of the rounds. The local epsilon under a shuffler is then not known,
        only its bound ``privacy.local_epsilon_max``.
    """
    terms = tuple(rounds)
    claims = (*_promise_claims(privacy, terms), *_collusion_claims(privacy, terms, planned))
    return Certificate(FORMAT, experiment, claims, tuple(_list_assumptions(privacy, terms)))


def _list_assumptions(privacy: Privacy, terms: tuple[Terms, ...]) -> Iterator[str]:
    """Yield the assumptions of the trust model, and those about arms, joint vectors and several reports."""
    yield from privacy.trust.assumes
    if any(round_terms.mechanism.counts_shares for round_terms in terms):
        yield _ARM_INDEPENDENCE_ASSUMPTION
    if any(round_terms.mechanism.norm == "joint" for round_terms in terms):
        yield _JOINT_ASSUMPTION
    reports = max((round_terms.reports for round_terms in terms), default=1)
    if needs_unseen_arms(privacy):
        yield _UNSEEN_ARMS_ASSUMPTION
    if reports > 1:
        yield f"a device reports {reports} times at most, and once a round"


def needs_unseen_arms(privacy: Privacy) -> bool:
    """Whether the promise assumes that no recipient of reports or releases sees a participant's arm."""
    return privacy.arm_visibility == "hidden" and privacy.trust.hides_arms


def _promise_claims(privacy: Privacy, terms: tuple[Terms, ...]) -> list[Claim]:
    """Return the claims against the adversary of the promise."""
    row = privacy.trust
    events = {event for round_terms in terms for event in _alternative_events(round_terms.event)}
    visible_events = {event for event in events if event is not None}
    # A round that reveals the record leaves nothing to claim, independently of the other rounds.
    if not row.promises or len(visible_events) < len(events):
        return [_empty_claim(row.reader)]
    share, sampling = terms[0].allotment, max(round_terms.mechanism.sampling for round_terms in terms)
    if share:
        visible_events, sampling = {compose_reports(share, visible_events)}, 0.0
    if privacy.is_as_local:
        return [_amplified_claim(f"{row.reader}, {_WITHOUT_ARMS}", privacy, visible_events)]
    claim = _make_claim(row.reader, privacy.bound, _claimed_delta(privacy, terms), visible_events, sampling)
    if row.noise is not NoiseOrigin.DEVICES:
        # The participant's arm is a function of the own record: nothing is claimed against adversaries who see it.
        return [replace(claim, protects=JOINT)]
    if row.crowd is Crowd.BATCH or not any(round_terms.mechanism.can_coins_choose_arm for round_terms in terms):
        return [claim]
    # The coins that chose the arm travel with the report: together with the arm they narrow the context down.
    arms_hidden, arms_visible = (f"{row.reader}, {audience}" for audience in (_WITHOUT_ARMS, _WITH_ARMS))
    return [replace(claim, adversary=arms_hidden), replace(claim, adversary=arms_visible, protects=_RECORD_WITHOUT_ARM)]


def _alternative_events(event: Event | None) -> tuple[Event | None, ...]:
    """Return the alternative events of a parallel event: a participant is in one of them."""
    return event.events if isinstance(event, Parallel) else (event,)


def _claimed_delta(privacy: Privacy, terms: tuple[Terms, ...]) -> float:
    """Return the promised delta; the true delta if a published calibration does not keep the promise."""
    if privacy.trust.is_simulated and not all(round_terms.keeps_promise for round_terms in terms):
        return max(round_terms.true_delta for round_terms in terms)
    return privacy.delta


def _collusion_claims(privacy: Privacy, terms: tuple[Terms, ...], planned: bool) -> Iterator[Claim]:
    """Yield the claims against parties that the promise trusts: server and shuffler together, or the curator."""
    if privacy.trust.endpoint is Recipient.SHUFFLER:
        local_epsilons = {round_terms.mechanism.local_epsilon for round_terms in terms}
        if not math.isfinite(max(local_epsilons)):
            is_shared = privacy.trust.noise is NoiseOrigin.SERVERS
            yield _empty_claim(_COLLUDERS, _SHARES_DETAIL if is_shared else _BATCH_NOISE_DETAIL)
        else:
            yield from _report_claims(privacy, terms, {privacy.local_epsilon_bound} if planned else local_epsilons)
    if privacy.trust.curator is Curator.SERVER:
        yield _empty_claim("the server")


def _report_claims(privacy: Privacy, terms: tuple[Terms, ...], local_epsilons: Collection[float]) -> Iterator[Claim]:
    """Yield the claims of reports by themselves, without a shuffler: a batch is a function of them.

    If their coins chose the arms, coins and arm together narrow the context down, as without a shuffler.
    """
    claim = _local_claim(local_epsilons, terms[0].reports)
    yield replace(claim, adversary=f"{_COLLUDERS}, {_WITHOUT_ARMS}") if privacy.is_as_local else claim
    can_coins_choose = any(round_terms.mechanism.can_coins_choose_arm for round_terms in terms)
    if not privacy.has_arm_in_key and claim.event is not None and can_coins_choose:
        yield replace(claim, adversary=f"{_COLLUDERS}, {_WITH_ARMS}", protects=_RECORD_WITHOUT_ARM)


def _amplified_claim(adversary: str, privacy: Privacy, events: Collection[Event]) -> Claim:
    """Return the claim of a batch of reports that keep the promise alone: the smallest epsilon at its delta."""
    epsilon = max(account(event).epsilon(privacy.delta) for event in events)
    return _make_claim(adversary, min(privacy.bound, math.ceil(epsilon * _STEPS) / _STEPS), privacy.delta, events)


def _local_claim(epsilons: Collection[float], reports: int) -> Claim:
    """Return the claim of reports by their local epsilons alone."""
    events: set[Event] = {Pure(epsilon) for epsilon in epsilons}
    total_epsilon = reports * max(epsilons)
    if total_epsilon > EPSILON_MAX:
        return _empty_claim(_COLLUDERS, f"{reports} reports cost an epsilon of {total_epsilon:g} without a crowd")
    if reports > 1:
        events = {Repeated(Parallel(tuple(sorted(events, key=repr))), reports)}
    return _make_claim(_COLLUDERS, total_epsilon, 0.0, events)


def _make_claim(
    adversary: str, epsilon: float, delta: float, events: Collection[Event], sampling: float = 0.0
) -> Claim:
    """Return the claim about a participant of whom the adversary sees any one of ``events``."""
    ordered = tuple(sorted(events, key=repr))
    event = ordered[0] if len(ordered) == 1 else Parallel(ordered)
    curve = account(event)
    return Claim(adversary, epsilon, delta, event, sampling, curve.proof, curve.exact)


def _empty_claim(adversary: str, reason: str = "it sees the record") -> Claim:
    return Claim(adversary, None, 1.0, None, 0.0, f"nothing is claimed: {reason}", exact=True)


def read_certificate(value: Any) -> Certificate:
    """Parse and check the certificate of a JSON value."""
    try:
        certificate = msgspec.convert(value, cache_decoder(Certificate))
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
    if len({claim.adversary for claim in claims}) < len(claims):
        raise SpecError("two claims against one adversary", field="certificate.claims", remedy=_REMEDY)
    if max(len(claims), len(certificate.assumes)) > _COUNT_MAX:
        raise SpecError(f"has more than {_COUNT_MAX} claims or assumptions", field="certificate", remedy=_REMEDY)
    words = [certificate.experiment, *certificate.assumes]
    words += [text for claim in claims for text in (claim.adversary, claim.protects, claim.proof)]
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
    return [_recompute_claim(claim) for claim in certificate.claims]


def _recompute_claim(claim: Claim) -> Verdict:
    """Recompute delta of a claim's event at its epsilon, and return whether it is within the claim."""
    claim_fields = (claim.adversary, claim.protects, claim.epsilon, claim.delta)
    if claim.epsilon is None or claim.event is None:
        reason = "nothing is computed: no event is claimed"
        return Verdict(*claim_fields, 1.0, reason, exact=True, holds=claim.delta >= 1.0)
    curve = account(claim.event)
    delta = curve.delta(claim.epsilon) + claim.sampling
    holds = delta <= claim.delta * (1 + RELATIVE_TOLERANCE) and (curve.exact or not claim.exact)
    return Verdict(*claim_fields, delta, curve.proof, curve.exact, holds)
