"""`analyze` with epsilon reads each row by itself: nothing of the other rows changes with one of them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privateer_lab as lab
from privateer_core.errors import SpecError

PEOPLE = 4_000
SHARES = {"1": 0.5, "inf": 0.5}


def rows(**first: Any) -> dict[str, Any]:
    """People of two options, of whom the second has an effect; the first person's cells may be others."""
    rng = np.random.default_rng(4)
    arms = ["1" if one else "inf" for one in rng.random(PEOPLE) < 0.5]
    columns: dict[str, list[Any]] = {
        "arm": arms,
        "reward": [float(rng.random() < (0.2 if arm == "1" else 0.8)) for arm in arms],
        "who": [str(person) for person in range(PEOPLE)],
    }
    for name, cell in first.items():
        columns[name][0] = cell
    return columns


@pytest.mark.parametrize("cell", ["1", "inf", "x", "", "1e999", 10**30, "\ud800", None, float("nan")])
def test_one_cell_changes_no_other_row(cell: Any) -> None:
    """An option that is called inf stays one, whatever else is in its column."""
    found = lab.analyze(rows(arm=cell), shares=SHARES, epsilon=2.0)
    [effect] = found.answer.effects
    assert effect.is_decided
    assert effect.value == pytest.approx(0.6, abs=0.1)
    assert found.answer.people == PEOPLE


@pytest.mark.parametrize("cell", ["7f", "12e407", "1"])
def test_the_number_of_people_is_the_only_count_that_is_told(cell: str) -> None:
    found = lab.analyze(rows(who=cell), shares=SHARES, epsilon=2.0, person="who")
    assert found.answer.people == len({cell, *map(str, range(1, PEOPLE))})
    assert found.answer.effects[0].is_decided


@pytest.mark.parametrize("gap", ["", None])
def test_rows_of_nobody_are_no_person(gap: Any) -> None:
    assert lab.analyze(rows(who=gap), shares=SHARES, epsilon=2.0, person="who").answer.people == PEOPLE - 1


def test_rows_of_which_none_counts_are_answered_as_others_are() -> None:
    """A refusal would tell that nobody had an option of these."""
    people = rows()
    people["arm"] = ["other"] * PEOPLE
    found = lab.analyze(people, shares=SHARES, epsilon=1.0)
    assert not found.answer.effects[0].is_decided


@pytest.mark.filterwarnings("error")
def test_no_warning_tells_of_a_huge_reward() -> None:
    lab.analyze(rows(reward=1e308), shares=SHARES, epsilon=1.0, bounds=(0.0, 0.1))


def test_the_decimal_sign_is_given_where_a_file_has_another_separator(tmp_path: Path) -> None:
    """It is not found from rows, and taken for a point it would make numbers unreadable without a word."""
    rng, path = np.random.default_rng(2), tmp_path / "sold.csv"
    lines = [f"{'ab'[int(b)]};{'4,99' if rng.random() < (0.2 + 0.4 * b) else '0,00'}" for b in rng.integers(0, 2, 6000)]
    path.write_text("\n".join(["arm;reward", *lines]))
    shares = {"a": 0.5, "b": 0.5}
    with pytest.raises(SpecError, match=re.escape("--decimal: must be given with epsilon")):
        lab.analyze(path, shares=shares, epsilon=1.0, bounds=(0.0, 10.0))
    found = lab.analyze(path, shares=shares, epsilon=1.0, bounds=(0.0, 10.0), decimal=",")
    assert found.answer.effects[0].value == pytest.approx(2.0, abs=0.2)
    assert found.answer.recommended == "b"
