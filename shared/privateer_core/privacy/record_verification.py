"""Verification of privacy records: their certificates must be exactly those that follow from their rows."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, cast

import msgspec
from msgspec import structs

from privateer_core.accounting.events import Event, Parallel, Repeated
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.errors import SpecError
from privateer_core.portable import is_same, rounded_key
from privateer_core.prepared_types import cache_decoder
from privateer_core.privacy.certificate import Certificate, certify, check_certificate, read_certificate
from privateer_core.privacy.record import (
    FORMAT,
    OF_BATCHES,
    PROMISE,
    CohortPromise,
    PlannedTerms,
    Record,
    Row,
    read_terms,
    row_of_tier,
)
from privateer_core.privacy.terms import JUMP, Terms
from privateer_core.privacy.trust import CALIBRATIONS, TIGHT, Crowd, check_promise, count_honest, trust_of
from privateer_core.spec.privacy import Privacy, default_of_idle_key
from privateer_core.spec.sections import parse_section

_REMEDY: Final = "ask for a new record, and do not trust this one"
_PARTICIPANTS_MAX: Final = 10**12


def read_certificates(value: Any) -> dict[str, Certificate]:
    """Verify a certificate, or a record with its rows, from a JSON value, and return the certificates by cohort.

    The experiment's own participants have the empty name.
    """
    if not (isinstance(value, dict) and value.get("format") == FORMAT):
        return {"": read_certificate(value)}
    record = _read_record(value)
    promises: dict[str, CohortPromise] = {"": record} | {named.name: named for named in record.named_promises}
    _check(len(promises) == 1 + len(record.named_promises), "names must be distinct", "sources")
    cohort_versions = [[row.version for row in promise.rounds] for promise in (record, *record.sources)]
    _check_versions([*cohort_versions, list(record.silent)])
    _check_tiers(record)
    sources = {source.name for source in record.sources}
    for cohort, promise in promises.items():
        _Cohort(record, f"{'sources' if cohort in sources else 'tiers'}.{cohort}." if cohort else "", promise).check()
    return {cohort: promise.certificate for cohort, promise in promises.items()}


def _read_record(value: dict[str, Any]) -> Record:
    """Parse a record, and refuse an unknown algorithm and settings that the algorithm does not have."""
    try:
        record = msgspec.convert(value, cache_decoder(Record))
    except (msgspec.ValidationError, RecursionError, UnicodeError, OverflowError) as error:
        remedy = "see docs/privacy/certificates.md"
        raise SpecError(f"not a privacy record: {error}", field="record", remedy=remedy) from None
    _check(record.algorithm in ALGORITHMS, "there is no such algorithm", "algorithm")
    capabilities = algorithm(record.algorithm).spec.capabilities
    has_unusable_sources = bool(record.sources) and not capabilities.takes_sources
    _check(not has_unusable_sources, "an experiment of this algorithm has no sources", "sources")
    has_crowd = trust_of(record.model).crowd is not Crowd.NOBODY
    can_return = capabilities.takes_several_reports and not record.sources and has_crowd
    _check(can_return or record.reports_per_person == 1, "must be 1: people report once", "reports_per_person")
    _check(not PROMISE & set(record.privacy), "must not repeat model, epsilon or delta", "privacy")
    _check_idle(record)
    return record


def _check_idle(record: Record) -> None:
    """Refuse settings that no promise depends on unless they have their defaults."""
    spec = algorithm(record.algorithm).spec
    _check(spec.capabilities.closes_early or record.least_share == 1, "must be 1 under this algorithm", "least_share")
    batch_keys = frozenset() if trust_of(record.model).crowd is Crowd.BATCH else OF_BATCHES
    for name in sorted(spec.capabilities.idle_keys | batch_keys):
        default = default_of_idle_key(name)
        is_default = record.privacy.get(name, default) == default
        _check(is_default, f"does nothing here, and must be {default}", f"privacy.{name}")


def _check_tiers(record: Record) -> None:
    """Refuse a record whose tiers differ from its promise, or whose tiers list different rounds."""
    tiers = () if record.tiers is msgspec.UNSET else record.tiers
    stated = record.privacy.get("tiers", ())
    is_list = isinstance(stated, list | tuple) and all(isinstance(tier, dict) for tier in stated)
    pairs = [(tier.get("name"), tier.get("epsilon")) for tier in stated] if is_list else None
    _check([(tier.name, tier.epsilon) for tier in tiers] == pairs, "must be those of the promise", "tiers")
    for index, tier in enumerate(tiers, 1):
        is_same = tier.rounds == tuple(row_of_tier(row, index) for row in record.rounds)
        _check(is_same, "must be the experiment's, for the tier's people", f"tiers.{tier.name}.rounds")


def _check_versions(cohorts: list[list[int]]) -> None:
    """Refuse versions unless each follows another version of the record, or is the first after a jump."""
    versions = [version for cohort in cohorts for version in cohort]
    in_order = cohorts == [sorted(set(cohort)) for cohort in cohorts] and len(set(versions)) == len(versions)
    _check(in_order, "each must be there once, and in order", "rounds.version")
    missing = {version - 1 for version in versions if version % JUMP != 1} - set(versions)
    _check(not missing, f"there is no round of version {min(missing, default=0)}", "rounds.version")


class _Cohort:
    """The promise to a cohort in a record, with the terms of its rows and its certificate."""

    def __init__(self, record: Record, prefix: str, promise: CohortPromise) -> None:
        self._record, self._prefix, self._promise = record, prefix, promise
        _check(promise.delta == record.delta, "differs from the experiment's", f"{prefix}delta")
        stated = {"model": record.model, "epsilon": promise.epsilon, "delta": promise.delta}
        self._spec = algorithm(record.algorithm).spec
        kind = cast(type[Privacy], self._spec.model_fields["privacy"].annotation)
        self._privacy = parse_section(kind, record.privacy | stated)
        check_promise(self._privacy, self._spec.question)

    def check(self) -> None:
        """Refuse rows that contradict themselves, the promise or the certificate."""
        claimed = self._promise.certificate
        rows = {path: self._read_terms(path, row) for path, row in self._rows_by_field().items()}
        check_certificate(claimed)
        round_certificates = {path: self._certify_round(path, terms) for path, terms in rows.items()}
        if (field := _find_difference(self._certify(rows.values()), claimed)) is None:
            return
        listed = {claim.adversary: _event_set(claim.event) for claim in claimed.claims}
        for path, certificate in round_certificates.items():
            pairs = [(_event_set(claim.event), listed.get(claim.adversary, _NO_EVENT)) for claim in certificate.claims]
            is_covered = all(events <= listed_events or listed_events >= _NO_EVENT for events, listed_events in pairs)
            _check(is_covered, "the certificate does not cover it", f"{path}.mechanism")
        raise _record_error("the certificate is not the one that the rounds make", f"{self._prefix}certificate.{field}")

    def _certify_round(self, path: str, terms: Terms) -> Certificate:
        """Return the certificate of one round alone; an error names the round's mechanism."""
        try:
            return self._certify([terms])
        except SpecError as error:
            raise _record_error(f"{error.field}: {error.detail}", f"{path}.mechanism") from None

    def _certify(self, terms: Iterable[Terms]) -> Certificate:
        return certify(self._record.experiment, self._privacy, terms, planned=self._promise.planned is not None)

    def _rows_by_field(self) -> dict[str, PlannedTerms]:
        """Return every round by its field in the record."""
        rounds, planned = self._promise.rounds, self._promise.planned
        planned_path = f"{self._prefix}planned"
        _check(bool(rounds) != (planned is not None), "must be there just where there are no rounds", planned_path)
        is_served = planned is not None or self._privacy.trust.is_served
        _check(is_served, "no service runs rounds of this model", f"{self._prefix}rounds")
        return {planned_path: planned} if planned else {f"{self._prefix}rounds.{row.version}": row for row in rounds}

    def _read_terms(self, path: str, row: PlannedTerms) -> Terms:
        """Return the terms of a row, and refuse a batch, cost or local epsilon that the promise does not imply."""
        privacy, batch = self._privacy, row.batch_size
        needs_batch = privacy.trust.crowd is Crowd.BATCH
        if isinstance(row, Row):
            _check_received(path, row)
        is_possible = max(1, needs_batch * privacy.min_batch) <= batch <= _PARTICIPANTS_MAX
        _check(is_possible, "there is no such batch under this promise", f"{path}.batch_size")
        honest = count_honest(privacy, math.ceil(self._record.least_share * batch))
        _check(row.honest == honest, f"does not follow from a batch of {batch}", f"{path}.honest")
        try:
            terms = read_terms(row, self._spec, privacy, self._record.reports_per_person)
        except SpecError as error:
            raise _record_error(error.detail, f"{path}.{error.field}") from None
        is_allowed = privacy.trust.promises or terms.mechanism.release_event is None
        _check(is_allowed, "has noise, and nothing is promised", f"{path}.mechanism")
        is_within = terms.reports == 1 or terms.keeps_promise
        _check(is_within, "costs more than a report's share of the promise", f"{path}.mechanism")
        local_epsilon = terms.mechanism.local_epsilon
        max_epsilon = privacy.local_epsilon_bound
        is_within = local_epsilon <= max_epsilon or math.isinf(local_epsilon) or not needs_batch
        excess = f"a report alone costs {local_epsilon:g}, the promise allows {max_epsilon:g}"
        _check(is_within, excess, f"{path}.mechanism")
        if needs_batch and math.isfinite(local_epsilon):
            unused = f"a report alone costs {local_epsilon:g}, and might cost more, up to {max_epsilon:g}"
            _check(not _has_room(terms, max_epsilon), unused, f"{path}.mechanism")
        return terms


def _has_room(terms: Terms, max_epsilon: float) -> bool:
    """Whether the promise would hold for reports of a clearly larger local epsilon within its bound."""
    mechanism: Any = terms.mechanism
    factor = CALIBRATIONS.get(terms.calibration, CALIBRATIONS[TIGHT])
    if hasattr(mechanism, "epsilons"):
        candidates = [
            (*mechanism.epsilons[:group], epsilon * factor, *mechanism.epsilons[group + 1 :])
            for group, epsilon in enumerate(mechanism.epsilons)
            if mechanism.promised_shares[group] and epsilon * factor <= max_epsilon
        ]
        changed = (structs.replace(mechanism, epsilons=epsilons) for epsilons in candidates)
        return any(replace(terms, mechanism=candidate).keeps_promise for candidate in changed)
    if mechanism.local_epsilon * factor > max_epsilon or not hasattr(mechanism, "epsilon"):
        return False
    larger = structs.replace(mechanism, epsilon=mechanism.epsilon * factor)
    return replace(terms, mechanism=larger).keeps_promise


def _check_received(path: str, row: Row) -> None:
    """Refuse a round with too many received reports, or with a release of fewer than the promise counts on."""
    # A shuffled round that lacks honest participants waits for a further batch.
    max_received, min_received = row.batch_size + row.honest, max(1, row.honest)
    _check(row.organisation is None or row.organisation.isprintable(), "must be printable", f"{path}.organisation")
    _check(0 <= row.received <= max_received, f"must be 0 to {max_received}", f"{path}.received")
    is_releasable = not row.released or row.received >= min_received
    _check(is_releasable, f"must be false below {min_received} people", f"{path}.released")


def _find_difference(expected: Certificate, claimed: Certificate) -> str | None:
    """Return the first field in which two certificates differ, or None; proofs, which are texts, are not compared."""
    for name in ("experiment", "assumes"):
        if getattr(expected, name) != getattr(claimed, name):
            return name
    if len(expected.claims) != len(claimed.claims):
        return "claims"
    for index, (left, right) in enumerate(zip(expected.claims, claimed.claims, strict=True)):
        for name in ("adversary", "protects", "epsilon", "event", "sampling", "exact", "delta"):
            if not is_same(getattr(left, name), getattr(right, name)):
                return f"claims.{index}.{name}"
    return None


def _event_set(event: Event | None) -> set[tuple[Any, ...]]:
    # If participants report several times, any of the rounds repeats. Messages of a report are a single event.
    """Return the lookup keys of an event's alternatives, also of those that repeat."""
    match event:
        case Parallel(events) | Repeated(Parallel(events), _):
            return set(map(rounded_key, events))
        case _:
            return {rounded_key(event)}


_NO_EVENT: Final = _event_set(None)


def _check(is_valid: bool, detail: str, field: str) -> None:
    if not is_valid:
        raise _record_error(detail, field)


def _record_error(detail: str, field: str) -> SpecError:
    return SpecError(detail, field=field, remedy=_REMEDY)
