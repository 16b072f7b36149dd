"""Verifies the terms of a round on a device, which computes everything anew and never trusts the server's numbers."""

import math
from dataclasses import dataclass
from typing import Final, get_args

from privateer_core.errors import SpecError, TermsRefused
from privateer_core.primitives.questions import Question
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import TIGHT, honest_people
from privateer_core.spec.privacy import Arms, Privacy
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Round

BATCH_MAX: Final = 100_000_000
"""The most people of a shuffled batch that devices take part in."""
_WORK_MAX: Final = {"messages": 1 << 17, "directions": 1024, "seed": (1 << 64) - 1}
"""What a mechanism may ask of a device, where it has such a size."""
_REMEDY: Final = "do not take part"
_ASSUMED: Final = {
    "as-local": ("who sees which arm a person got learns from the report for which contexts that arm is", "they may"),
    "grouped": ("the promise counts on nobody choosing by arm whose reports to drop or to falsify", "nobody does"),
    "hidden": ("the promise counts on nobody seeing which arm a person got", "nobody sees it"),
}
"""What a promise assumes of those who see arms, and the condition under which a device may accept it."""


@dataclass(frozen=True)
class Limits:
    """Limits of what a device accepts; the application sets them, never a server.

    Attributes
    ----------
    epsilon, delta
        The most that all reports to an experiment together may cost under its trust model.
    local_epsilon
        The most that they may cost if everybody else colludes. A spec of epsilon 4 asks for 6 unless it says less, and
        needs the application's consent.
    honest_fraction, min_batch
        The largest share of a shuffled batch that the promise may count on, and the fewest reports of a batch.
    arms
        ``seen``: somebody who gets reports, or reads releases, may see which arm this person got, and the whole promise
        has to hold against them. ``as-local``: against them it is enough that reports keep what they keep where nobody
        shuffles: coins may say for which contexts the arm is. ``grouped``: the promise has to hold against them, but
        may count on nobody's choosing by arm whose reports to drop or to falsify. Else a report keeps ``local_epsilon``
        alone. ``hidden``: nobody sees it, so promises that count on it are accepted. Each accepts what those before it
        do.
    curator
        Whether records may be sent to the server as they are, for it to protect or not. Where it does not, ``epsilon``
        must be infinite as well.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    local_epsilon: float = 4.0
    honest_fraction: float = 0.9
    min_batch: int = 1000
    arms: Arms = "seen"
    curator: bool = False


def verify(
    terms: Terms, spec: Spec, cohort: str, facts: Round, limits: Limits, asked: type[Question] | None = None
) -> None:
    """Refuse terms that miss the spec's promise or the device's limits; compute both anew from the parameters alone.

    Parameters
    ----------
    terms
        What the policy says.
    spec, cohort
        The experiment, and the source that the person belongs to; empty for the experiment's own people.
    facts
        What the round says.
    limits
        What the device accepts.
    asked
        What the round asks, as its policy says; by default what the algorithm asks.

    Raises
    ------
    TermsRefused
        Naming what is missed, with the promised value and the allowed one.
    """
    privacy = spec.privacy_of(cohort)
    _agree(terms, spec, privacy, facts)
    question = asked or spec.question
    _check(
        question in (spec.question, *spec.capabilities.further_questions),
        "the algorithm does not ask that",
        "mechanism",
    )
    _check_round(terms, spec, privacy, facts, question)
    _afford(terms, privacy, facts, limits)
    _check_promise(terms, privacy)


def _agree(terms: Terms, spec: Spec, privacy: Privacy, facts: Round) -> None:
    """Refuse terms that are not those of the spec; a device takes tight calibrations only."""
    expected = {
        "model": privacy.model,
        "epsilon": privacy.bound,
        "delta": privacy.delta,
        "calibration": TIGHT,
        "batch": facts.batch,
        "honest": honest_people(privacy, facts.fewest),
        "reports": spec.reports,
    }
    # Published calibrations are for simulation alone, whatever the server's terms call them.
    _check(privacy.trust.calibration == TIGHT, "the algorithm is for simulation alone", "calibration")
    for name, value in expected.items():
        _check(getattr(terms, name) == value, "the terms differ from the experiment's spec", name)


def _check_round(terms: Terms, spec: Spec, privacy: Privacy, facts: Round, question: type[Question]) -> None:
    """Refuse another mechanism than the trust model's, too few people, and more work than an honest round asks."""
    row = privacy.trust
    ours = isinstance(terms.mechanism, row.serves[question].mechanisms)
    _check(ours, "the trust model does not have this mechanism", "mechanism")
    fewest = max(spec.fewest(facts.batch), row.batched * privacy.min_batch)
    enough = f"the round may close with {facts.fewest} people, the spec says {fewest} at least"
    _check(facts.fewest >= fewest, enough, "least")
    for name, most in _WORK_MAX.items():
        _check(0 <= getattr(terms.mechanism, name, 0) <= most, f"must be 0 to {most}", name)


def _afford(terms: Terms, privacy: Privacy, facts: Round, limits: Limits) -> None:
    """Refuse what the device does not allow: a cost, a trusted party, or what the promise assumes of other people."""
    _check_arms(privacy, limits)
    curated = privacy.trust.curated
    trusts = f"under the model '{terms.model}' the server sees records, and this device does not allow that"
    remedy = "do not take part, or set Limits(curator=True) if the server may see them"
    _check(limits.curator or not curated, trusts, "model", remedy)
    # Where records are sent, nothing is left if everybody else colludes.
    for name in ("epsilon", "delta") if curated else ("epsilon", "delta", "local_epsilon"):
        cost, limit = getattr(terms, name), getattr(limits, name)
        several = f"{terms.reports} reports together cost" if terms.reports > 1 else "costs"
        costs = f"{several} {cost:g}, this device allows {limit:g}"
        _check(cost <= limit, costs, name, f"do not take part, or allow more with Limits({name}=...)")
    if privacy.trust.batched:
        share, fewest = privacy.honest_fraction, facts.fewest
        counts = f"the promise counts on {share:g} of a batch, this device on {limits.honest_fraction:g}"
        _check(share <= limits.honest_fraction, counts, "honest_fraction")
        sizes = f"a batch may have {fewest} reports, this device takes {limits.min_batch} to {BATCH_MAX}"
        remedy = "do not take part, or allow fewer with Limits(min_batch=...)" if fewest <= BATCH_MAX else _REMEDY
        _check(limits.min_batch <= fewest <= BATCH_MAX, sizes, "batch", remedy)


def _check_arms(privacy: Privacy, limits: Limits) -> None:
    """Refuse a promise that assumes more about who sees arms than the device does."""
    order = get_args(Arms)
    accepted = not privacy.trust.hides_arms or order.index(privacy.arms) <= order.index(limits.arms)
    detail, condition = _ASSUMED.get(privacy.arms, ("", ""))
    remedy = f"do not take part, or set Limits(arms='{privacy.arms}') if {condition}"
    _check(accepted, detail, "arms", remedy)


def _check_promise(terms: Terms, privacy: Privacy) -> None:
    """Refuse a mechanism that does not keep the promise, by the accountant."""
    alone, most = terms.mechanism.local_epsilon, privacy.alone_most
    needs_batch = math.isinf(alone) and not privacy.as_alone
    fits = alone <= most or needs_batch or not privacy.trust.batched
    _check(fits, f"a report alone costs {alone:g}, the spec allows {most:g}", "local_epsilon")
    try:
        holds = terms.holds
    except SpecError as error:
        raise TermsRefused("there is no such randomizer", field=error.field, remedy=_REMEDY) from None
    if not holds and terms.reports > 1:
        detail = f"a report costs more than its share of the promise for {terms.reports} reports"
        raise TermsRefused(detail, field="delta", remedy=_REMEDY)
    if not holds:
        found = f"delta is {terms.true_delta:.3g} in truth, promised is {terms.delta:g}"
        raise TermsRefused(found, field="delta", remedy=_REMEDY)


def _check(good: bool, detail: str, field: str, remedy: str = _REMEDY) -> None:
    # Comparisons with NaN are false, so that what is not a number is refused.
    if not good:
        raise TermsRefused(detail, field=field, remedy=remedy)
