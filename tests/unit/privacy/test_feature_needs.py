"""The number of participants that features require under a promise, and the concern about too many features."""

import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.privacy.cell_reports import describe_horizon_concerns, required_participants
from privateer_core.privacy.order import list_concerns

LOCAL = {"model": "local", "epsilon": 1.0}
CENTRAL = {"model": "central", "epsilon": 1.0, "delta": 1e-6}


def spec(promise, features=19, people=15_000, algorithm="partition"):
    return parse_spec(
        {
            "experiment": {"name": "test", "arms": list("abcdef"), "horizon": people},
            "context": {"features": {f"x{j}": {"low": 0.0, "high": 1.0} for j in range(features)}},
            "privacy": promise,
            "algorithm": {"name": algorithm, **({"bins": 8} if algorithm == "additive" else {})},
        }
    )


@pytest.mark.parametrize("algorithm", ["partition", "additive"])
def test_more_features_and_more_noise_take_more_people(algorithm):
    for promise in (LOCAL, CENTRAL):
        n1, n3, n19 = (required_participants(spec(promise, algorithm=algorithm), count) for count in (1, 3, 19))
        assert n1 < n3 < n19
    shuffled = {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6}
    needs = [required_participants(spec(promise, algorithm=algorithm), 3) for promise in (CENTRAL, shuffled, LOCAL)]
    assert needs == sorted(needs)
    twice_epsilon = required_participants(spec({"model": "local", "epsilon": 2.0}, algorithm=algorithm), 3)
    assert twice_epsilon < 0.5 * required_participants(spec(LOCAL, algorithm=algorithm), 3)


def test_too_many_features_are_a_concern_with_the_number_of_people_required():
    """Planted: enough people, a spec without a promise, and a spec without features have no concern."""
    (concern,) = describe_horizon_concerns(spec(LOCAL))
    n_required = required_participants(spec(LOCAL), 19)
    assert f"15,000 people tell little of 19 features under this promise: it takes about {n_required:,} " in concern
    assert concern in list_concerns(spec(LOCAL))
    assert not list(describe_horizon_concerns(spec(LOCAL, people=2 * n_required)))
    assert not list(describe_horizon_concerns(spec({"model": "none"})))
    from_log = spec(LOCAL).model_copy(update={"population": {"name": "rows", "path": "a.people.parquet"}})
    assert not list(describe_horizon_concerns(from_log))
    n_features = next(indice for indice in range(19, 0, -1) if required_participants(spec(CENTRAL), indice) <= 15_000)
    assert f"Name {n_features} at most" in next(describe_horizon_concerns(spec(CENTRAL)))
    assert not list(describe_horizon_concerns(spec(CENTRAL, features=n_features)))
