"""Plans and simulations warn of specs that services with their shipped limits would refuse, in the services' words."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.planning.admission import KnownLimits, check_admission, concerns_before_start
from privateer_lab.simulation.simulate import is_gaining, list_warnings, simulate_once
from tests.support.specs import make_spec

EXAMPLES = Path(__file__).parents[4] / "examples"


def example(name: str) -> Spec:
    return parse_spec(tomllib.loads((EXAMPLES / f"{name}.toml").read_text()))


def test_simulations_warn_of_each_refusal_with_the_words_of_the_services() -> None:
    spec = example("dpe")
    with pytest.raises(SpecError) as refused:
        check_admission(spec, KnownLimits(assumed=("as shipped",)))
    prefix = "services as they are shipped refuse this spec: "
    warnings = [message for message in list_warnings(spec, [], {}) if message.startswith(prefix)]
    refusals = [message.split(": ", 1)[1] for message in warnings]
    assert [refusal.split(":")[0] for refusal in refusals] == ["algorithm.alpha", "privacy.min_batch"]
    assert str(refused.value) == "; ".join(refusals)[:-1] + "; as shipped)"


def test_runs_that_gain_refute_that_people_tell_little_of_features() -> None:
    """Planted: the advice of a randomized log stood beside a table whose runs gain."""
    spec = make_spec({"experiment.horizon": 3000, "population": {"name": "mixed", "relevant": ["x1"], "function": 3}})

    def tells_little(**gains: bool) -> list[bool]:
        return ["people tell little of" in warning for warning in list_warnings(spec, [], {}, **gains)]

    assert any(tells_little())
    assert not any(tells_little(gains=True))
    runs = [simulate_once(spec, seed) for seed in range(2)]
    assert is_gaining([replace(run, best_constant_regret=run.regret + 100) for run in runs])
    assert not is_gaining([replace(run, best_constant_regret=run.regret - 1) for run in runs])
    assert not is_gaining(runs[:1])


@pytest.mark.parametrize("name", ["stations", "peaks-shuffle", "peaks-local"])
def test_specs_that_services_accept_have_no_warning(name: str) -> None:
    assert not any("refuse" in concern for concern in concerns_before_start(example(name)))
    assert check_admission(example(name), KnownLimits()) > 0
