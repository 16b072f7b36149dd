"""What batteries run by day covers the registry, and the rest is left for the night."""

from types import SimpleNamespace

import pytest

from privateer_core.algorithms import ALGORITHMS
from privateer_core.mechanisms import MECHANISMS
from privateer_core.privacy.trust import TRUST
from tests.contract.subjects import specs, subjects
from tests.support.batteries import move_to_the_night, sample, words

FUNCTIONS = [f"test_{number}" for number in range(20)]
INSTANCES, SUBJECTS = ({name: words(name) for name in cases} for cases in (specs(), subjects()))


def test_a_sample_has_every_algorithm_mechanism_and_trust_model():
    for function in FUNCTIONS:
        chosen = sample(INSTANCES, function)
        assert set().union(*map(words, chosen)) >= {*ALGORITHMS, *TRUST}
        assert len(chosen) < len(INSTANCES) / 3
        assert set().union(*map(words, sample(SUBJECTS, function))) >= {kind.__name__ for kind in MECHANISMS}


def test_a_sample_is_always_the_same_and_functions_have_different_ones():
    assert sample(INSTANCES, "one") == sample(dict(reversed(INSTANCES.items())), "one")
    assert len({frozenset(sample(INSTANCES, function)) for function in FUNCTIONS}) > 10


class Case:
    """A test, as collected."""

    def __init__(self, nodeid, *marks, **params):
        self.nodeid, self.callspec = nodeid, SimpleNamespace(params=params)
        self.marks = {mark: SimpleNamespace(args=(), kwargs={}) for mark in marks}

    def get_closest_marker(self, name):
        return self.marks.get(name)

    def add_marker(self, mark):
        self.marks[mark.name] = mark


def test_only_cases_of_batteries_move_to_the_night_and_a_single_case_stays():
    battery = [Case(f"file.py::test[{first}-{second}]", "battery") for first in "abc" for second in "xyz"]
    others = [Case("file.py::test", "battery"), Case("file.py::other[a-x]")]
    late = [Case("file.py::test[d-x]", "battery", "nightly")]
    move_to_the_night([*battery, *others, *late])
    stays = [case.nodeid[14:-1] for case in battery if "nightly" not in case.marks]
    assert len(stays) == 3
    assert set().union(*map(words, stays)) == set("abcxyz")
    assert not any("nightly" in case.marks for case in others)
    single = Case("file.py::test[a-x]", "battery")
    move_to_the_night([single])
    assert set(single.marks) == {"battery"}


def test_a_battery_may_name_the_parameters_that_count():
    cases = [Case(f"file.py::test[{a}-{x}]", "battery", one=a, two=x) for a in "ab" for x in "xyz"]
    for case in cases:
        case.marks["battery"].args = ("one",)
    move_to_the_night(cases)
    assert [case.callspec.params["one"] for case in cases if "nightly" not in case.marks] == ["a", "b"]


def test_functions_of_the_same_draws_have_the_same_sample():
    def sampled(**arguments):
        names = []
        for function in FUNCTIONS:
            cases = [Case(f"file.py::{function}[{first}-{second}]", "battery") for first in "abcd" for second in "wxyz"]
            for case in cases:
                case.marks["battery"].kwargs = arguments
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
