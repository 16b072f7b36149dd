"""What batteries run by day covers the registry, and the rest is left for the night."""

import pytest

from privateer_core.algorithms import ALGORITHMS
from privateer_core.mechanisms import MECHANISMS
from privateer_core.trust import TRUST
from tests.contract.subjects import specs, subjects
from tests.support.batteries import move_to_the_night, sample

FUNCTIONS = [f"test_{number}" for number in range(20)]


def words(cases):
    return {word for case in cases for word in case.split("-")}


@pytest.mark.parametrize("of", FUNCTIONS)
def test_a_sample_has_every_algorithm_mechanism_and_trust_model(of):
    chosen = sample(specs(), of)
    assert words(chosen) == words(specs()) > {*ALGORITHMS, *TRUST}
    assert len(chosen) < len(specs()) / 3
    assert {kind.__name__ for kind in MECHANISMS} < words(sample(subjects(), of))


def test_a_sample_is_always_the_same_and_functions_have_different_ones():
    assert sample(specs(), "one") == sample(reversed(specs()), "one")
    assert len({frozenset(sample(specs(), of)) for of in FUNCTIONS}) > 10


class Case:
    """A test, as collected."""

    def __init__(self, nodeid, *marks):
        self.nodeid, self.marks = nodeid, set(marks)

    def get_closest_marker(self, name):
        return name in self.marks

    def add_marker(self, mark):
        self.marks.add(mark.name)


def test_only_cases_of_batteries_go_and_one_that_is_asked_for_alone_stays():
    battery = [Case(f"file.py::test[{one}-{two}]", "battery") for one in "abc" for two in "xyz"]
    others = [Case("file.py::test", "battery"), Case("file.py::other[a-x]")]
    late = [Case("file.py::test[d-x]", "battery", "nightly")]
    move_to_the_night([*battery, *others, *late])
    stays = [case for case in battery if "nightly" not in case.marks]
    assert len(stays) == 3
    assert words(case.nodeid[14:-1] for case in stays) == set("abcxyz")
    assert not any("nightly" in case.marks for case in others)
    alone = Case("file.py::test[a-x]", "battery")
    move_to_the_night([alone])
    assert alone.marks == {"battery"}
