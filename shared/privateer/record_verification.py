"""How a privacy record is checked: what its rows say must be all that its certificates claim, and no more."""

import math
from typing import Any, Final

import msgspec

from privateer.accounting.events import Event, Parallel
from privateer.certificate import Certificate, bounded_alone, check_certificate, read_certificate
from privateer.errors import SpecError
from privateer.record import FAMILIES, FORMAT, JUMP, PROMISE, ROW, Promise, Record, terms_names
from privateer.sections import parse_section

_REMEDY: Final = "ask for a new record, and do not trust this one"
_PEOPLE_MAX: Final = 10**12
_OTHER_DIGITS: Final = 1e-6
"""Delta may differ by so much of it: other machines' last digits."""
_FIELDS: Final = {"epsilon": "local_epsilon", "symbols": "buckets", "trials": "bits", "sensitivity": "bound"}
"""Where a row has another word for what an event says."""


def read_certificates(value: Any) -> dict[str, Certificate]:
    """The certificates of a document by cohort, from what JSON makes of it: of a certificate alone, or of a record.

    The experiment's own people have the empty name.

    Raises
    ------
    SpecError
        If it is neither, or the rows of a record do not make its certificates; names the row's version and field.
    """
    if not (isinstance(value, dict) and value.get("format") == FORMAT):
        return {"": read_certificate(value)}
    record = _read_record(value)
    promises: dict[str, Promise] = {"": record} | {source.name: source for source in record.sources}
    if len(promises) <= len(record.sources):
        raise SpecError("names must be distinct", field="sources", remedy=_REMEDY)
    if record.sources and record.algorithm == "phased":
        raise SpecError("a phased experiment has none", field="sources", remedy=_REMEDY)
    _check_versions([[row.get("version") for row in promise.rounds] for promise in promises.values()])
    for cohort, promise in promises.items():
        _Cohort(record, cohort, promise).check()
    return {cohort: promise.certificate for cohort, promise in promises.items()}


def _read_record(value: dict[str, Any]) -> Record:
    try:
        return msgspec.convert(value, Record)
    except (msgspec.ValidationError, RecursionError, UnicodeError, OverflowError) as error:
        raise SpecError(f"not a privacy record: {error}", field="record", remedy="see docs/privacy.md") from None


def _check_versions(cohorts: list[list[Any]]) -> None:
    """Versions name the rounds: each follows one that is there, or is the first after a jump."""
    versions = [version for cohort in cohorts for version in cohort]
    whole = all(type(version) is int and version > 0 for version in versions)
    if not whole or cohorts != [sorted(cohort) for cohort in cohorts] or len(set(versions)) < len(versions):
        raise SpecError("must be whole numbers above 0, each once and in order", field="rounds.version", remedy=_REMEDY)
    missing = {version - 1 for version in versions if version % JUMP != 1} - set(versions)
    if missing:
        raise SpecError(f"there is no round of version {min(missing)}", field="rounds.version", remedy=_REMEDY)


class _Cohort:
    """One cohort's promise in a record: what its rows say, and the certificate that they make."""

    def __init__(self, record: Record, cohort: str, promise: Promise) -> None:
        self._record, self._promise = record, promise
        self._family = FAMILIES[record.algorithm]
        self._where = f"sources.{cohort}." if cohort else ""
        if PROMISE & set(record.privacy):
            raise self._refused("must not repeat model, epsilon or delta", "privacy")
        if promise.delta != record.delta:
            raise self._refused("differs from the experiment's", "delta")
        told = {"model": record.model, "epsilon": promise.epsilon, "delta": promise.delta}
        self._privacy: Any = parse_section(self._family.privacy, record.privacy | told)

    def check(self) -> None:
        """Refuse rows that contradict themselves, the promise or the certificate."""
        given, rows = self._promise.certificate, self._rows()
        check_certificate(given)
        try:
            made = self._made([terms for _, terms in rows])
        except SpecError as error:
            self._check_covered(rows)
            raise self._refused(error.detail, f"rounds.{error.field}") from None
        if field := _difference(made, given):
            self._check_covered(rows)
            raise self._refused("the certificate is not the one that the rounds make", f"certificate.{field}")

    def _made(self, terms: list[Any]) -> Certificate:
        made = self._family.certify(self._record.experiment, self._privacy, terms)
        planned = not self._promise.rounds and self._record.model == "shuffle"
        return bounded_alone(made, self._alone) if planned and self._alone is not None else made

    @property
    def _alone(self) -> float | None:
        """The most that a report alone may cost under shuffle; vectors have no such bound."""
        most: float | None = getattr(self._privacy, "local_epsilon_max", None)
        return most

    def _rows(self) -> list[tuple[str, Any]]:
        """The terms of every round, and the name of its place in the record."""
        rounds, planned = self._promise.rounds, self._promise.planned
        if bool(rounds) == (planned is not None):
            raise self._refused("must be given just where there are no rounds", "planned")
        if planned is not None:
            return [("planned", self._terms("planned", planned, frozenset()))]
        rows = [(f"rounds.{row['version']}", row) for row in rounds]
        told = [(place, self._terms(place, row, ROW)) for place, row in rows]
        for (place, terms), (_, row) in zip(told, rows, strict=True):
            self._check_received(place, terms, row)
        return told

    def _terms(self, place: str, row: dict[str, Any], more: frozenset[str]) -> Any:
        names = terms_names(self._family.terms)
        if wrong := (names | more) ^ set(row):
            raise self._refused("missing, or unknown", f"{place}.{min(wrong)}")
        told = {name: math.inf if name == "local_epsilon" and row[name] is None else row[name] for name in names}
        promise = {"model": self._record.model, "epsilon": self._privacy.bound, "delta": self._promise.delta, "seed": 0}
        try:
            terms = msgspec.convert(told | promise, self._family.terms)
        except (msgspec.ValidationError, UnicodeError, OverflowError) as error:
            raise self._refused(f"no such terms: {error}", place) from None
        self._check_batch(place, terms)
        self._check_idle(place, terms)
        return terms

    def _check_batch(self, place: str, terms: Any) -> None:
        """What follows from the batch does: the honest people above all."""
        privacy, family = self._privacy, self._family
        shuffled = privacy.model == "shuffle"
        if not (shuffled * privacy.min_batch <= terms.batch <= _PEOPLE_MAX and terms.batch >= 1):
            raise self._refused("no such batch under this promise", f"{place}.batch")
        fewest = math.ceil(self._record.least_share * terms.batch)
        for name, value in family.promised(privacy, terms.batch, fewest).items():
            if getattr(terms, name) != value:
                raise self._refused(f"does not follow from a batch of {terms.batch}", f"{place}.{name}")
        if terms.mechanism not in family.mechanisms[privacy.model]:
            raise self._refused("not a mechanism of the trust model", f"{place}.mechanism")
        if shuffled and self._alone is not None and not terms.local_epsilon <= self._alone:
            raise self._refused("above privacy.local_epsilon_max", f"{place}.local_epsilon")

    def _check_idle(self, place: str, terms: Any) -> None:
        for name, idle in self._family.idle.items():
            if name not in self._family.used[terms.mechanism] and getattr(terms, name) != idle:
                raise self._refused(f"says nothing under the mechanism '{terms.mechanism}'", f"{place}.{name}")

    def _check_received(self, place: str, terms: Any, row: dict[str, Any]) -> None:
        """A round takes no more people than it can, and a release has those that the promise counts on."""
        received, released = row["received"], row["released"]
        # A shuffled round that is short of honest people waits for one batch more.
        most = terms.batch + terms.honest
        if not (type(received) is int and 0 <= received <= most):
            raise self._refused(f"must be 0 to {most}", f"{place}.received")
        if type(released) is not bool or (released and received < max(1, terms.honest)):
            raise self._refused(f"must be false below {max(1, terms.honest)} people", f"{place}.released")

    def _check_covered(self, rows: list[tuple[str, Any]]) -> None:
        """Refuse the first row that says something that the certificate does not cover."""
        for place, terms in rows:
            try:
                alone = self._made([terms])
            except SpecError as error:
                raise self._refused(error.detail, f"{place}.{_FIELDS.get(str(error.field), error.field)}") from None
            if name := _uncovered(alone, self._promise.certificate):
                raise self._refused("the certificate does not cover it", f"{place}.{_FIELDS.get(name, name)}")

    def _refused(self, detail: str, field: str) -> SpecError:
        return SpecError(detail, field=self._where + field, remedy=_REMEDY)


def _difference(made: Certificate, given: Certificate) -> str | None:
    """Where a certificate differs from the one that was made; proofs are words, and the verifier's own count."""
    for name in ("experiment", "assumes"):
        if getattr(made, name) != getattr(given, name):
            return name
    if len(made.claims) != len(given.claims):
        return "claims"
    for place, (left, right) in enumerate(zip(made.claims, given.claims, strict=True)):
        for name in ("against", "about", "epsilon", "event", "sampling", "exact"):
            if getattr(left, name) != getattr(right, name):
                return f"claims.{place}.{name}"
        if not math.isclose(left.delta, right.delta, rel_tol=_OTHER_DIGITS):
            return f"claims.{place}.delta"
    return None


def _uncovered(alone: Certificate, given: Certificate) -> str | None:
    """The field of a round's event that is in no claim against the same adversary."""
    claimed = {claim.against: _parts(claim.event) for claim in given.claims}
    for claim in alone.claims:
        parts = claimed.get(claim.against)
        if claim.event is None or parts is None or claim.event in parts:
            continue
        alike = [_differing(claim.event, part) for part in parts if type(part) is type(claim.event)]
        return min(alike, key=len)[0] if alike else "mechanism"
    return None


def _parts(event: Event | None) -> tuple[Event, ...]:
    if event is None:
        return ()
    return event.events if isinstance(event, Parallel) else (event,)


def _differing(event: Event, other: Event) -> list[str]:
    names = [field.name for field in msgspec.structs.fields(event)]
    return [name for name in names if getattr(event, name) != getattr(other, name)]
