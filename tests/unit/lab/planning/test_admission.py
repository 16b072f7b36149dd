"""Before anything is started, plan and simulate say what services as they are shipped would refuse, in their words."""

import tomllib
from pathlib import Path

import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.spec.spec import Spec
from privateer_lab.planning.admission import KnownLimits, check_admission, concerns_before_start
from privateer_lab.simulation.summary import warnings

EXAMPLES = Path(__file__).parents[4] / "examples"


def example(name: str) -> Spec:
    return parse_spec(tomllib.loads((EXAMPLES / f"{name}.toml").read_text()))


def test_simulations_warn_of_each_refusal_with_the_words_of_the_services() -> None:
    spec = example("dpe")
    with pytest.raises(SpecError) as refused:
        check_admission(spec, KnownLimits(assumed=("as shipped",)))
    said = [one for one in warnings(spec, [], {}) if one.startswith("services as they are shipped refuse this spec: ")]
    refusals = [one.split(": ", 1)[1] for one in said]
    assert [refusal.split(":")[0] for refusal in refusals] == ["algorithm.alpha", "privacy.min_batch"]
    assert str(refused.value) == "; ".join(refusals)[:-1] + "; as shipped)"


@pytest.mark.parametrize("name", ["stations", "peaks-shuffle", "peaks-local"])
def test_nothing_is_said_of_what_services_take(name: str) -> None:
    assert not any("refuse" in concern for concern in concerns_before_start(example(name)))
    assert check_admission(example(name), KnownLimits()) > 0
