"""Verification of a round's terms on a device, which recomputes all privacy costs and does not trust the server."""

import math
from dataclasses import dataclass
from typing import Final, get_args

from privateer_core.errors import SpecError, TermsRefused
from privateer_core.mechanisms.tiered_symbol import TieredSymbol
from privateer_core.primitives.questions import Question
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import CALIBRATIONS, Crowd, Curator, NoiseOrigin, count_honest
from privateer_core.spec.privacy import ArmVisibility, Privacy
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import MESSAGES_MAX, Round

BATCH_MAX: Final = 100_000_000
"""Largest number of participants of a shuffled batch that devices take part in."""
_WORK_MAX: Final = {"messages": MESSAGES_MAX, "directions": 1024, "seed": (1 << 64) - 1}
"""Largest sizes of a mechanism's work on a device, by name of the parameter."""
_REMEDY: Final = "do not take part"
_ARM_ASSUMPTIONS: Final = {
    "as-local": ("who sees which arm a person got learns from the report for which contexts that arm is", "they may"),
    "grouped": ("the promise counts on nobody choosing by arm whose reports to drop or to falsify", "nobody does"),
    "hidden": ("the promise counts on nobody seeing which arm a person got", "nobody sees it"),
}
"""Assumption of a promise about adversaries who see arms, and the condition under which a device may accept it."""


@dataclass(frozen=True)
class Limits:
    """Limits of the privacy costs that a device accepts; the application sets them, never a server.

    Attributes
    ----------
    epsilon, delta
        Largest cost of all reports to an experiment together under its trust model. Where participants choose between
        tiers, the device takes the highest tier of this epsilon at most.
    local_epsilon
        Largest cost of the reports if all other parties collude. A spec of epsilon 4 uses 6 by default, and needs the
        application's consent.
    honest_fraction, min_batch
        Largest share of a shuffled batch that the promise may count on, and smallest number of reports of a batch.
    arm_visibility
        ``visible``: recipients of reports, or readers of releases, may see the participant's arm, and the whole promise
        has to hold against them. ``as-local``: against them it is enough that reports keep the promise of reports
        without a shuffler: coins may reveal for which contexts the arm is. ``grouped``: the promise has to hold against
        them, but may assume that reports are not dropped or falsified by arm. Else a report keeps ``local_epsilon``
        alone. ``hidden``: no adversary sees the arm, so promises that assume this are accepted. Each value accepts the
        promises of those before it.
    allow_central
        Whether exact records may be sent to the server, which may protect them. If it does not, ``epsilon`` must be
        infinite, too.
    """

    epsilon: float = 1.0
    delta: float = 1e-5
    local_epsilon: float = 4.0
    honest_fraction: float = 0.9
    min_batch: int = 1000
    arm_visibility: ArmVisibility = "visible"
    allow_central: bool = False


def verify(
    terms: Terms, spec: Spec, cohort: str, facts: Round, limits: Limits, asked_question: type[Question] | None = None
) -> None:
    """Refuse terms that miss the spec's promise or the device's limits, both recomputed from the parameters alone.

    ``cohort`` is the participant's source or tier, or empty; ``asked_question`` is the round's, else the algorithm's.
    """
    privacy = spec.cohort_privacy(cohort)
    _check_agreement(terms, spec, privacy, facts)
    question = asked_question or spec.question
    is_asked = question in (spec.question, *spec.capabilities.further_questions)
    _check(is_asked, "the algorithm does not ask that", "mechanism")
    _check_round(terms, spec, privacy, facts, question)
    _check_limits(terms, privacy, facts, limits)
    _check_promise(terms, privacy)


def _check_agreement(terms: Terms, spec: Spec, privacy: Privacy, facts: Round) -> None:
    """Refuse terms that differ from the spec, and calibrations that are not by an accountant of this device."""
    expected = {
        "model": privacy.model,
        "epsilon": privacy.bound,
        "delta": privacy.delta,
        "batch_size": facts.batch_size,
        "honest": count_honest(privacy, facts.fewest),
        "reports": spec.reports,
    }
    # Published calibrations are for simulation alone, also if the server's terms name them otherwise.
    _check(not privacy.trust.is_simulated, "these terms are for simulation alone", "calibration")
    detail = "another accountant made the terms, and this device cannot check them"
    _check(terms.calibration in CALIBRATIONS, detail, "calibration", "update the application, or do not take part")
    for name, value in expected.items():
        _check(getattr(terms, name) == value, "the terms differ from the experiment's spec", name)


def _check_round(terms: Terms, spec: Spec, privacy: Privacy, facts: Round, question: type[Question]) -> None:
    """Refuse a mechanism that the trust model lacks, too few participants, and more work than an honest round needs."""
    row = privacy.trust
    serving = row.serves[question]
    is_expected = isinstance(terms.mechanism, serving.mechanisms)
    _check(is_expected, "the trust model does not have this mechanism", "mechanism")
    n_tiers = len(terms.mechanism.channels) if isinstance(terms.mechanism, TieredSymbol) else 0
    _check(n_tiers == len(privacy.tier_shares), "the round's tiers are not those of the spec", "mechanism.channels")
    has_norm = terms.mechanism.norm in serving.norms
    _check(has_norm, "the question's vectors have another norm", "mechanism.ball.norm")
    min_batch = privacy.min_batch if row.crowd is Crowd.BATCH else 0
    fewest = max(spec.min_reports(facts.batch_size), min_batch)
    detail = f"the round may close with {facts.fewest} people, the spec says {fewest} at least"
    _check(facts.fewest >= fewest, detail, "least")
    for name, max_size in _WORK_MAX.items():
        _check(0 <= getattr(terms.mechanism, name, 0) <= max_size, f"must be 0 to {max_size}", name)


def _check_limits(terms: Terms, privacy: Privacy, facts: Round, limits: Limits) -> None:
    """Refuse terms beyond the device's limits: of costs, of trusted parties, or of the promise's assumptions."""
    _check_arms(privacy, limits)
    row = privacy.trust
    trusts = f"under the model '{terms.model}' the server sees records, and this device does not allow that"
    remedy = "do not take part, or set Limits(allow_central=True) if the server may see them"
    _check(limits.allow_central or row.curator is Curator.NOBODY, trusts, "model", remedy)
    # A report without noise of its own has no local epsilon.
    for name in ("epsilon", "delta", *(("local_epsilon",) if row.noise is NoiseOrigin.DEVICES else ())):
        cost, limit = getattr(terms, name), getattr(limits, name)
        several = f"{terms.reports} reports together cost" if terms.reports > 1 else "costs"
        costs = f"{several} {cost:g}, this device allows {limit:g}"
        _check(cost <= limit, costs, name, f"do not take part, or allow more with Limits({name}=...)")
    if row.crowd is Crowd.BATCH:
        share, fewest = privacy.honest_fraction, facts.fewest
        counts = f"the promise counts on {share:g} of a batch, this device on {limits.honest_fraction:g}"
        _check(share <= limits.honest_fraction, counts, "honest_fraction")
        sizes = f"a batch may have {fewest} reports, this device takes {limits.min_batch} to {BATCH_MAX}"
        remedy = "do not take part, or allow fewer with Limits(min_batch=...)" if fewest <= BATCH_MAX else _REMEDY
        _check(limits.min_batch <= fewest <= BATCH_MAX, sizes, "batch_size", remedy)


def _check_arms(privacy: Privacy, limits: Limits) -> None:
    """Refuse a promise that assumes more about adversaries who see arms than the device does."""
    order = get_args(ArmVisibility)
    is_accepted = not privacy.trust.hides_arms or order.index(privacy.arm_visibility) <= order.index(
        limits.arm_visibility
    )
    detail, condition = _ARM_ASSUMPTIONS.get(privacy.arm_visibility, ("", ""))
    remedy = f"do not take part, or set Limits(arm_visibility='{privacy.arm_visibility}') if {condition}"
    _check(is_accepted, detail, "arm_visibility", remedy)


def _check_promise(terms: Terms, privacy: Privacy) -> None:
    """Refuse a mechanism that does not keep the promise, by the accountant."""
    local_epsilon, max_epsilon = terms.mechanism.local_epsilon, privacy.local_epsilon_bound
    needs_batch = math.isinf(local_epsilon) and not privacy.is_as_local
    is_within = local_epsilon <= max_epsilon or needs_batch or privacy.trust.crowd is not Crowd.BATCH
    _check(is_within, f"a report alone costs {local_epsilon:g}, the spec allows {max_epsilon:g}", "local_epsilon")
    try:
        is_kept = terms.keeps_promise
    except SpecError as error:
        raise TermsRefused("there is no such randomizer", field=error.field, remedy=_REMEDY) from None
    detail = f"a report costs more than its share of the promise for {terms.reports} reports"
    _check(is_kept or terms.reports == 1, detail, "delta")
    if not is_kept:
        reason = f"delta is {terms.true_delta:.3g} in truth, promised is {terms.delta:g}"
        raise TermsRefused(reason, field="delta", remedy=_REMEDY)


def _check(is_valid: bool, detail: str, field: str, remedy: str = _REMEDY) -> None:
    # Comparisons with NaN are false, so that NaN is refused.
    if not is_valid:
        raise TermsRefused(detail, field=field, remedy=remedy)
