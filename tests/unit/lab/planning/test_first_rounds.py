"""A plan and a certificate ahead of the first round name the question of that round."""

import pytest

from privateer_core.privacy.record import make_record
from privateer_lab.planning.plans import describe_first_rounds, make_variants
from privateer_server.rounds.loop import Schedule
from tests.support.specs import make_spec


@pytest.mark.parametrize(("model", "epsilon"), [("shuffle", 1.0), ("shuffle", 4.0), ("local", 1.0), ("central", 1.0)])
@pytest.mark.parametrize("rate", [0.005, 0.3, 0.5, None])
def test_the_first_round_asks_for_what_was_planned(model: str, epsilon: float, rate: float | None) -> None:
    """A learner opens the round. The defect named a symbol of a bit and its sign where events were asked for."""
    declared = {} if rate is None else {"reward.base_rate": rate}
    (variant,) = make_variants(make_spec(declared), (model,), (epsilon,))
    (row,) = describe_first_rounds([variant])
    terms = Schedule(variant.spec).open(0).policy.terms
    assert row["mechanism"] == type(terms.mechanism).__struct_config__.tag
    assert row["people"] == terms.batch_size
    if rate not in (None, 0.5):
        planned = variant.spec.first_terms("")
        assert planned is not None
        assert planned.mechanism.local_epsilon == terms.mechanism.local_epsilon


def test_rare_events_are_asked_for_and_a_certificate_ahead_says_so() -> None:
    plain, rare = (
        make_variants(make_spec(declared), ("shuffle",), (1.0,))[0] for declared in ({}, {"reward.base_rate": 0.005})
    )
    assert describe_first_rounds([plain])[0]["mechanism"] == "signed-symbol"
    assert describe_first_rounds([rare])[0]["mechanism"] == "event-symbol"
    planned = make_record(rare.spec, {}).planned
    assert planned is not None
    assert planned.mechanism["type"] == "event-symbol"
