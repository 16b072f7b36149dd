"""The privacy record of an experiment: what each person is promised, round by round, with a certificate."""

from collections import defaultdict
from collections.abc import Mapping

from privateer_core.codec import decode
from privateer_core.record import Planned, Record, Row, make_record
from privateer_core.spec import Spec
from privateer_server.rounds import RoundFacts
from privateer_server.store import RoundRecord, ShufflerKey


def privacy(spec: Spec, rounds: list[RoundRecord], closers: Mapping[int, ShufflerKey]) -> Record:
    """Return the record of an experiment with these rounds, released or not, and whose batches they took."""
    by_cohort = defaultdict[str, list[Row]](list)
    for stored in rounds:
        if stored.batch:
            facts = decode(stored.facts, RoundFacts)
            by_cohort[facts.cohort].append(_row(stored, facts.terms, closers.get(stored.version)))
    return make_record(spec, by_cohort, [stored.version for stored in rounds if not stored.batch])


def _row(stored: RoundRecord, terms: Planned, closer: ShufflerKey | None) -> Row:
    # Nothing is released below the honest minimum.
    return Row(
        version=stored.version,
        received=stored.received,
        released=stored.taken and stored.received >= max(1, terms.honest),
        batch=terms.batch,
        honest=terms.honest,
        mechanism=terms.mechanism,
        shuffler=closer.shuffler if closer else None,
        organisation=closer.organisation if closer else None,
    )
