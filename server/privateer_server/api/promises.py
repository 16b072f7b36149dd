"""The privacy record of an experiment: what each person is promised, round by round, with a certificate."""

from collections import defaultdict

from privateer.codec import decode
from privateer.record import Planned, Record, Row, make_record, planned_of
from privateer.spec import Spec
from privateer_server.rounds import RoundFacts
from privateer_server.store import RoundRecord


def privacy(spec: Spec, rounds: list[RoundRecord]) -> Record:
    """Return the record of an experiment with these rounds, released or not.

    A cohort whose turn has not come has the terms of its first round as they are calibrated ahead.
    """
    by_cohort = defaultdict[str, list[Row]](list)
    for stored in rounds:
        if stored.batch:
            facts = decode(stored.facts, RoundFacts)
            by_cohort[facts.cohort].append(_row(stored, facts.terms))
    planned = {
        cohort: planned_of(terms)
        for cohort in spec.cohorts
        if cohort not in by_cohort and (terms := spec.planned(cohort))
    }
    return make_record(spec, by_cohort, planned)


def _row(stored: RoundRecord, terms: Planned) -> Row:
    """Return a round's terms with the sizes that it reached; nothing is released below the honest minimum."""
    released = stored.taken and stored.received >= max(1, terms.honest)
    return Row(
        version=stored.version,
        received=stored.received,
        released=released,
        batch=terms.batch,
        honest=terms.honest,
        mechanism=terms.mechanism,
    )

