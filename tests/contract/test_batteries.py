"""What batteries run by day covers the registry, and the rest is left for the night."""

from types import SimpleNamespace

import pytest

from privateer_core.algorithms import ALGORITHMS
from privateer_core.mechanisms import MECHANISMS
from privateer_core.privacy.trust import TRUST
from tests.contract.subjects import specs, subjects
from tests.support.batteries import move_to_the_night, sample, words

FUNCTIONS = [f"test_{number}" for number in range(20)]
INSTANCES, SUBJECTS = ({name: words(name) for name in made} for made in (specs(), subjects()))


def test_a_sample_has_every_algorithm_mechanism_and_trust_model():
    for of in FUNCTIONS:
        chosen = sample(INSTANCES, of)
        assert set().union(*map(words, chosen)) >= {*ALGORITHMS, *TRUST}
        assert len(chosen) < len(INSTANCES) / 3
        assert set().union(*map(words, sample(SUBJECTS, of))) >= {kind.__name__ for kind in MECHANISMS}


def test_a_sample_is_always_the_same_and_functions_have_different_ones():
    assert sample(INSTANCES, "one") == sample(dict(reversed(INSTANCES.items())), "one")
    assert len({frozenset(sample(INSTANCES, of)) for of in FUNCTIONS}) > 10


class Case:
    """A test, as collected."""

    def __init__(self, nodeid, *marks, **params):
        self.nodeid, self.callspec = nodeid, SimpleNamespace(params=params)
        self.marks = {mark: SimpleNamespace(args=(), kwargs={}) for mark in marks}

    def get_closest_marker(self, name):
        return self.marks.get(name)

    def add_marker(self, mark):
        self.marks[mark.name] = mark


def test_only_cases_of_batteries_go_and_one_that_is_asked_for_alone_stays():
    battery = [Case(f"file.py::test[{one}-{two}]", "battery") for one in "abc" for two in "xyz"]
    others = [Case("file.py::test", "battery"), Case("file.py::other[a-x]")]
    late = [Case("file.py::test[d-x]", "battery", "nightly")]
    move_to_the_night([*battery, *others, *late])
    stays = [case.nodeid[14:-1] for case in battery if "nightly" not in case.marks]
    assert len(stays) == 3
    assert set().union(*map(words, stays)) == set("abcxyz")
    assert not any("nightly" in case.marks for case in others)
    alone = Case("file.py::test[a-x]", "battery")
    move_to_the_night([alone])
    assert set(alone.marks) == {"battery"}


def test_a_battery_may_name_the_parameters_that_count():
    cases = [Case(f"file.py::test[{one}-{two}]", "battery", one=one, two=two) for one in "ab" for two in "xyz"]
    for case in cases:
        case.marks["battery"].args = ("one",)
    move_to_the_night(cases)
    assert [case.callspec.params["one"] for case in cases if "nightly" not in case.marks] == ["a", "b"]


def test_functions_of_the_same_draws_have_the_same_sample():
    def sampled(**how):
        names = []
        for of in FUNCTIONS:
            cases = [Case(f"file.py::{of}[{one}-{two}]", "battery") for one in "abcd" for two in "wxyz"]
            for case in cases:
                case.marks["battery"].kwargs = how
            move_to_the_night(cases)
            names.append(frozenset(case.nodeid.partition("[")[2] for case in cases if "nightly" not in case.marks))
        return set(names)

    assert len(sampled(of="draws")) == 1
    assert len(sampled()) > 5


def test_a_marker_that_names_no_parameter_fails():
    """Planted: a parameter that was renamed."""
    case = Case("file.py::test[a]", "battery", other="a")
    case.marks["battery"].args = ("one",)
    with pytest.raises(KeyError):
        move_to_the_night([case])
