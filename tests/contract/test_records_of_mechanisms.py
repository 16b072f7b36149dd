"""A record's row gives back what its round promised, whichever mechanism the round had."""

from collections.abc import Iterator

import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.errors import SpecError
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.primitives.public_coins import Layout
from privateer_core.privacy.record import PlannedTerms, describe_terms, read_terms
from privateer_core.privacy.terms import Terms
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.spec import Spec


def rounds() -> Iterator[tuple[str, Spec, Terms]]:
    """Terms with each mechanism that may serve an algorithm under each trust model."""
    for name in ALGORITHMS:
        for spec in algorithm(name).spec.instances().values():
            privacy = spec.privacy
            serving = privacy.trust.serves[spec.question]
            for kind in serving.mechanisms:
                for instance_name, mechanism in kind.instances().items():
                    if mechanism.norm not in serving.norms:
                        continue
                    promise = (privacy.model, privacy.bound, privacy.delta, privacy.trust.calibration)
                    honest = 4500 if privacy.trust.crowd is Crowd.BATCH else 0
                    terms = Terms(*promise, 5000, honest, mechanism, spec.reports)  # type: ignore[arg-type]
                    yield f"{name} {privacy.model} {kind.__name__} {instance_name}", spec, terms


def test_rows_give_back_what_rounds_promised() -> None:
    terms_by_name = {name: (spec, terms) for name, spec, terms in rounds()}
    assert len(terms_by_name) > 100
    for name, (spec, terms) in terms_by_name.items():
        read = read_terms(describe_terms(terms), type(spec), spec.privacy, spec.reports)
        assert read.event == terms.event, name


@pytest.mark.parametrize("keys", [None, -1, 0, 1.5, True, "4", 40_000])
def test_an_event_symbol_of_no_number_of_keys_is_refused(keys: object) -> None:
    spec, terms = next((spec, terms) for name, spec, terms in rounds() if "EventSymbol" in name)
    row = describe_terms(terms)
    wrong = PlannedTerms(batch_size=row.batch_size, honest=row.honest, mechanism=row.mechanism | {"keys": keys})
    with pytest.raises(SpecError, match="mechanism"):
        read_terms(wrong, type(spec), spec.privacy, spec.reports)


def test_fewer_keys_than_there_were_are_another_event() -> None:
    """The planted defect: a record that says one key for seven would certify a larger epsilon than was checked."""
    seven, single = (EventSymbol(Layout.ungrouped(keys, 0), 2.0).batch_event(5000) for keys in (7, 1))
    assert seven != single
