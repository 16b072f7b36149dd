"""How many people features take under a promise, and who is told that theirs are too many."""

import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.privacy.cell_reports import concerns_of_features, people_for
from privateer_core.privacy.order import concerns_of

LOCAL = {"model": "local", "epsilon": 1.0}
CENTRAL = {"model": "central", "epsilon": 1.0, "delta": 1e-6}


def spec(promise, features=19, people=15_000, algorithm="partition"):
    return parse_spec(
        {
            "experiment": {"name": "test", "arms": list("abcdef"), "horizon": people},
            "context": {"features": {f"x{place}": {"low": 0.0, "high": 1.0} for place in range(features)}},
            "privacy": promise,
            "algorithm": {"name": algorithm, **({"bins": 8} if algorithm == "additive" else {})},
        }
    )


@pytest.mark.parametrize("algorithm", ["partition", "additive"])
def test_more_features_and_more_noise_take_more_people(algorithm):
    for promise in (LOCAL, CENTRAL):
        one, few, many = (people_for(spec(promise, algorithm=algorithm), count) for count in (1, 3, 19))
        assert one < few < many
    shuffled = {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6}
    needs = [people_for(spec(promise, algorithm=algorithm), 3) for promise in (CENTRAL, shuffled, LOCAL)]
    assert needs == sorted(needs)
    twice = people_for(spec({"model": "local", "epsilon": 2.0}, algorithm=algorithm), 3)
    assert twice < 0.5 * people_for(spec(LOCAL, algorithm=algorithm), 3)


def test_who_has_too_many_features_is_told_how_many_people_they_take():
    """Planted: who has people enough is told nothing, nor who promises nothing or knows no features."""
    (said,) = concerns_of_features(spec(LOCAL))
    needed = people_for(spec(LOCAL), 19)
    assert f"15,000 people tell little of 19 features under this promise: it takes about {needed:,} " in said
    assert said in concerns_of(spec(LOCAL))
    assert not list(concerns_of_features(spec(LOCAL, people=2 * needed)))
    assert not list(concerns_of_features(spec({"model": "none"})))
    few = next(one for one in range(19, 0, -1) if people_for(spec(CENTRAL), one) <= 15_000)
    assert f"Name {few} at most" in next(concerns_of_features(spec(CENTRAL)))
    assert not list(concerns_of_features(spec(CENTRAL, features=few)))
