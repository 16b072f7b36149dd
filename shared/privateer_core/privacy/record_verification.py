"""Verifies privacy records: what their rows say must be all that their certificates claim, and no more."""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, cast

import msgspec
from msgspec import structs

from privateer_core.accounting.events import Event, Parallel, Repeated
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.errors import SpecError
from privateer_core.portable import in_few_digits, is_same
from privateer_core.prepared_types import prepared
from privateer_core.privacy.certificate import Certificate, certify, check_certificate, read_certificate
from privateer_core.privacy.record import (
    FORMAT,
    OF_BATCHES,
    PROMISE,
    CohortPromise,
    PlannedTerms,
    Record,
    Row,
    terms_of,
)
from privateer_core.privacy.terms import JUMP, Terms
from privateer_core.privacy.trust import check_promise, honest_people, trust_of
from privateer_core.spec.privacy import Privacy, idle_default
from privateer_core.spec.sections import parse_section

_REMEDY: Final = "ask for a new record, and do not trust this one"
_PEOPLE_MAX: Final = 10**12
_ROOM: Final = 1.1
"""No calibration leaves so much of what a report may cost unused."""


def read_certificates(value: Any) -> dict[str, Certificate]:
    """Return the certificates of a document by cohort, from a JSON value: a certificate alone, or a whole record.

    The experiment's own people have the empty name.
    """
    if not (isinstance(value, dict) and value.get("format") == FORMAT):
        return {"": read_certificate(value)}
    record = _read_record(value)
    promises: dict[str, CohortPromise] = {"": record} | {source.name: source for source in record.sources}
    _check(len(promises) == 1 + len(record.sources), "names must be distinct", "sources")
    asked = [[row.version for row in promise.rounds] for promise in promises.values()]
    _check_versions([*asked, list(record.silent)])
    for cohort, promise in promises.items():
        _Cohort(record, f"sources.{cohort}." if cohort else "", promise).check()
    return {cohort: promise.certificate for cohort, promise in promises.items()}


def _read_record(value: dict[str, Any]) -> Record:
    try:
        record = msgspec.convert(value, prepared(Record))
    except (msgspec.ValidationError, RecursionError, UnicodeError, OverflowError) as error:
        remedy = "see docs/privacy/certificates.md"
        raise SpecError(f"not a privacy record: {error}", field="record", remedy=remedy) from None
    _check(record.algorithm in ALGORITHMS, "there is no such algorithm", "algorithm")
    capabilities = algorithm(record.algorithm).spec.capabilities
    _check(
        capabilities.takes_sources or not record.sources, "an experiment of this algorithm has no sources", "sources"
    )
    once = not capabilities.takes_several_reports or bool(record.sources) or trust_of(record.model).draws_one
    _check(not once or record.reports_per_person == 1, "must be 1: people report once", "reports_per_person")
    _check(not PROMISE & set(record.privacy), "must not repeat model, epsilon or delta", "privacy")
    _check_idle(record)
    return record


def _check_idle(record: Record) -> None:
    """Refuse what no promise depends on unless it is as by default: it would say what nothing else here bears out."""
    spec = algorithm(record.algorithm).spec
    _check(spec.capabilities.closes_early or record.least_share == 1, "must be 1 under this algorithm", "least_share")
    for name in sorted(spec.capabilities.idle_keys | (frozenset() if trust_of(record.model).batched else OF_BATCHES)):
        default = idle_default(name)
        _check(
            record.privacy.get(name, default) == default, f"does nothing here, and must be {default}", f"privacy.{name}"
        )


def _check_versions(cohorts: list[list[int]]) -> None:
    """Versions name the rounds: each follows one that is there, or is the first after a jump."""
    versions = [version for cohort in cohorts for version in cohort]
    in_order = cohorts == [sorted(set(cohort)) for cohort in cohorts] and len(set(versions)) == len(versions)
    _check(in_order, "each must be there once, and in order", "rounds.version")
    missing = {version - 1 for version in versions if version % JUMP != 1} - set(versions)
    _check(not missing, f"there is no round of version {min(missing, default=0)}", "rounds.version")


class _Cohort:
    """One cohort's promise in a record: what its rows say, and the certificate that they make."""

    def __init__(self, record: Record, where: str, promise: CohortPromise) -> None:
        self._record, self._where, self._promise = record, where, promise
        _check(promise.delta == record.delta, "differs from the experiment's", f"{where}delta")
        stated = {"model": record.model, "epsilon": promise.epsilon, "delta": promise.delta}
        self._spec = algorithm(record.algorithm).spec
        kind = cast(type[Privacy], self._spec.model_fields["privacy"].annotation)
        self._privacy = parse_section(kind, record.privacy | stated)
        check_promise(self._privacy, self._spec.question)

    def check(self) -> None:
        """Refuse rows that contradict themselves, the promise or the certificate."""
        given, rows = self._promise.certificate, {place: self._terms(place, row) for place, row in self._rows().items()}
        check_certificate(given)
        made = {place: self._made_alone(place, terms) for place, terms in rows.items()}
        if (field := _difference(self._made(rows.values()), given)) is None:
            return
        listed = {claim.against: _parts(claim.event) for claim in given.claims}
        for place, certificate in made.items():
            pairs = [(_parts(claim.event), listed.get(claim.against, _NO_EVENT)) for claim in certificate.claims]
            covered = all(parts <= known or known >= _NO_EVENT for parts, known in pairs)
            _check(covered, "the certificate does not cover it", f"{place}.mechanism")
        raise _refused("the certificate is not the one that the rounds make", f"{self._where}certificate.{field}")

    def _made_alone(self, place: str, terms: Terms) -> Certificate:
        try:
            return self._made([terms])
        except SpecError as error:
            raise _refused(f"{error.field}: {error.detail}", f"{place}.mechanism") from None

    def _made(self, terms: Iterable[Terms]) -> Certificate:
        return certify(self._record.experiment, self._privacy, terms, planned=self._promise.planned is not None)

    def _rows(self) -> dict[str, PlannedTerms]:
        """Return every round by its place in the record."""
        rounds, planned = self._promise.rounds, self._promise.planned
        where = f"{self._where}planned"
        _check(bool(rounds) != (planned is not None), "must be there just where there are no rounds", where)
        return {where: planned} if planned else {f"{self._where}rounds.{row.version}": row for row in rounds}

    def _terms(self, place: str, row: PlannedTerms) -> Terms:
        """Check that what follows from the batch does: the number of honest people above all."""
        privacy, batch = self._privacy, row.batch
        batched = privacy.trust.batched
        if isinstance(row, Row):
            _check_received(place, row)
        possible = max(1, batched * privacy.min_batch) <= batch <= _PEOPLE_MAX
        _check(possible, "there is no such batch under this promise", f"{place}.batch")
        honest = honest_people(privacy, math.ceil(self._record.least_share * batch))
        _check(row.honest == honest, f"does not follow from a batch of {batch}", f"{place}.honest")
        try:
            terms = terms_of(row, self._spec, privacy, self._record.reports_per_person)
        except SpecError as error:
            raise _refused(error.detail, f"{place}.{error.field}") from None
        quiet = privacy.trust.promises or terms.mechanism.released is None
        _check(quiet, "has noise, and nothing is promised", f"{place}.mechanism")
        fits = terms.reports == 1 or terms.holds
        _check(fits, "costs more than a report's share of the promise", f"{place}.mechanism")
        alone = terms.mechanism.local_epsilon
        most = privacy.alone_most
        fits = alone <= most or math.isinf(alone) or not batched
        _check(fits, f"a report alone costs {alone:g}, the promise allows {most:g}", f"{place}.mechanism")
        if batched and math.isfinite(alone):
            unused = f"a report alone costs {alone:g}, and might cost more, up to {most:g}"
            _check(not _has_room(terms, most), unused, f"{place}.mechanism")
        return terms


def _has_room(terms: Terms, most: float) -> bool:
    """Whether the promise would hold for reports that are clearly more exact, and still within what they may cost."""
    mechanism: Any = terms.mechanism
    if hasattr(mechanism, "epsilons"):
        alone = [(place, epsilon) for place, epsilon in enumerate(mechanism.epsilons) if mechanism.shared[place]]
        raised = [_raised(mechanism.epsilons, place) for place, epsilon in alone if epsilon * _ROOM <= most]
        return any(replace(terms, mechanism=structs.replace(mechanism, epsilons=one)).holds for one in raised)
    if mechanism.local_epsilon * _ROOM > most or not hasattr(mechanism, "epsilon"):
        return False
    return replace(terms, mechanism=structs.replace(mechanism, epsilon=mechanism.epsilon * _ROOM)).holds


def _raised(epsilons: tuple[float, ...], place: int) -> tuple[float, ...]:
    """Return the epsilons of groups, one of them raised."""
    return tuple(one * _ROOM if at == place else one for at, one in enumerate(epsilons))


def _check_received(place: str, row: Row) -> None:
    """A round takes no more people than it can, and a release has those that the promise counts on."""
    # A shuffled round that is short of honest people waits for one batch more.
    most, least = row.batch + row.honest, max(1, row.honest)
    readable = row.organisation is None or row.organisation.isprintable()
    _check(readable, "must be printable", f"{place}.organisation")
    _check(0 <= row.received <= most, f"must be 0 to {most}", f"{place}.received")
    released = not row.released or row.received >= least
    _check(released, f"must be false below {least} people", f"{place}.released")


def _difference(made: Certificate, given: Certificate) -> str | None:
    """Where a certificate differs from the one that was made; proofs are words, and the verifier's own count."""
    for name in ("experiment", "assumes"):
        if getattr(made, name) != getattr(given, name):
            return name
    if len(made.claims) != len(given.claims):
        return "claims"
    for place, (left, right) in enumerate(zip(made.claims, given.claims, strict=True)):
        for name in ("against", "about", "epsilon", "event", "sampling", "exact", "delta"):
            if not is_same(getattr(left, name), getattr(right, name)):
                return f"claims.{place}.{name}"
    return None


def _parts(event: Event | None) -> set[tuple[Any, ...]]:
    # Where people report several times, what repeats is any one of the rounds. Messages of one report are one part.
    match event:
        case Parallel(events) | Repeated(Parallel(events), _):
            return set(map(in_few_digits, events))
        case _:
            return {in_few_digits(event)}


_NO_EVENT: Final = _parts(None)


def _check(good: bool, detail: str, field: str) -> None:
    if not good:
        raise _refused(detail, field)


def _refused(detail: str, field: str) -> SpecError:
    return SpecError(detail, field=field, remedy=_REMEDY)
