"""Caps on the epsilon of a report by itself: the people that each takes, collusion, and the caps of drafts."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_client.participation import Participation
from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.algorithms import read_spec
from privateer_core.errors import TermsRefused
from privateer_core.privacy.order import change_promise
from privateer_core.privacy.terms_verification import Limits
from privateer_core.privacy.trust import count_honest
from privateer_core.sampling.randomness import RandomizedResponse
from privateer_core.spec.spec import Spec
from privateer_lab.drafting.fixed_sections import explain_cap, with_needed_cap
from privateer_lab.drafting.spec_draft import draft
from privateer_lab.drafting.written_draft import Draft
from privateer_lab.planning.local_caps import choose_cap, compare_caps, guess_max
from tests.support.publications import published
from tests.unit.lab.cli.test_command_line import run

TRIAL = Path(__file__).parents[4] / "examples" / "trial.toml"
PEOPLE = 40_000


def trial(epsilon: float = 1.0, horizon: int = 100_000) -> Spec:
    text = TRIAL.read_text().replace("epsilon = 1.0", f"epsilon = {epsilon}")
    text = text.replace("horizon = 100000", f"horizon = {horizon}")
    return read_spec(text.replace("round_size = 2500", f"round_size = {min(2500, horizon)}"))


def with_privacy(spec: Spec, **changes: Any) -> Spec:
    return spec.model_copy(update={"privacy": spec.privacy.model_copy(update=changes)})


@pytest.fixture(scope="module")
def drafted() -> Draft:
    """Return the draft of a test from a log."""
    rng = np.random.default_rng(0)
    columns = {"plan": ["a", "b"], "arm": ["old", "new"], "won": [0, 1]}
    table = {name: rng.choice(values, PEOPLE).tolist() for name, values in columns.items()}
    return draft(table, arm="arm", reward="won", segments=["plan"])


def test_a_larger_cap_takes_fewer_people_until_the_batch_needs_no_more() -> None:
    spec = trial()
    rows = compare_caps(spec, (5.0, 6.0, 7.0, 8.0, 12.0, 16.0))
    assert [row.local_epsilon_max for row in rows] == [4.0, 5.0, 6.0, 7.0, 8.0, 12.0, 16.0]
    assert rows[0].people_ratio == 1
    for left, right in pairwise(rows):
        assert (right.people_ratio < left.people_ratio) == (right.local_epsilon > left.local_epsilon)
    # Whatever the cap, a report costs what it allows or all that the promise does, and no more: from both sides.
    batch, largest = rows[-1].people_per_round, rows[-1].local_epsilon
    assert [row.local_epsilon for row in rows] == [min(row.local_epsilon_max, largest) for row in rows]
    mechanism: Any = change_promise(with_privacy(spec, local_epsilon_max=16.0), spec.privacy, batch)[1].mechanism
    symbols, honest = mechanism.response.symbols, count_honest(spec.privacy, batch)
    assert shuffled_delta(1.0, largest, symbols, honest) <= 1e-6 < shuffled_delta(1.0, largest + 0.01, symbols, honest)


@pytest.mark.parametrize("local_epsilon", [0.5, 4.0, 6.0])
def test_a_guess_from_a_report_is_right_as_often_as_the_plan_says(local_epsilon: float) -> None:
    """Of more than two symbols the best guess is right less often, as the report may be a third one."""
    for symbols in (2, 3, 24):
        right = (1 + RandomizedResponse(local_epsilon, symbols).gain) / 2
        assert (symbols > 2) == (right < guess_max(local_epsilon) - 1e-9)
        assert right <= guess_max(local_epsilon) + 1e-12


def test_a_plan_has_caps_of_reports_about_a_declared_rate() -> None:
    spec = read_spec(
        """
        [experiment]
        name = "rate"
        arms = ["blue", "green"]
        horizon = 6000
        [context.features]
        ios = { boolean = true }
        [reward]
        base_rate = 0.3
        [privacy]
        model = "shuffle"
        epsilon = 1.0
        delta = 1e-6
        [algorithm]
        name = "partition"
        """
    )
    rows = msgspec.to_builtins(compare_caps(spec))
    assert [row["local_epsilon_max"] for row in rows] == [4.0, 6.0, 8.0]


@pytest.mark.parametrize(
    "changes", [{"model": "local", "delta": 0.0}, {"model": "central"}, {"arm_visibility": "as-local"}]
)
def test_reports_that_no_cap_bounds_are_not_compared(changes: dict[str, Any]) -> None:
    assert compare_caps(trial())
    assert compare_caps(with_privacy(trial(), **changes)) == []


def test_drafts_have_the_smallest_cap_that_takes_hardly_more_people() -> None:
    """Planted: the largest cap that drafts may have, also where batches need no more than the default."""
    chosen = choose_cap(trial())
    assert chosen is not None
    assert (chosen.local_epsilon_max, round(chosen.people_ratio, 2)) == (6.0, 0.67)
    rows = {row.local_epsilon_max: row for row in compare_caps(trial(), (5.0, 6.0))}
    assert rows[5.0].people_ratio > 1.05 * rows[6.0].people_ratio
    smaller = choose_cap(trial(horizon=8_000))
    assert smaller is not None
    assert (smaller.local_epsilon_max, smaller.local_epsilon < 5.0) == (5.0, True), "the batch allows no more"
    assert choose_cap(trial(horizon=1_200)) is None
    assert choose_cap(trial(epsilon=4.0)) is None


def test_a_draft_says_what_its_cap_saves_and_what_a_collusion_means(drafted: Draft) -> None:
    lines, notes = drafted.text.splitlines(), " ".join(drafted.choice_notes)
    cap = drafted.spec.privacy.local_epsilon_max
    assert cap == 5.0
    index = lines.index("local_epsilon_max = 5.0")
    comment = " ".join(line.removeprefix("# ") for line in lines[index - 3 : index])
    (row,) = [
        row for row in compare_caps(with_privacy(drafted.spec, local_epsilon_max=4.0), [cap]) if row.people_ratio < 1
    ]
    assert f"take {1 - row.people_ratio:.0%} fewer people" in comment
    assert "If shuffler and server collude" in comment
    assert "with probability 99.3% at most; with 4 it is 98.2%" in comment
    assert f"Limits(local_epsilon={cap:g})" in notes
    assert with_needed_cap(drafted.text) == drafted.text
    default = read_spec(drafted.text.replace("\n".join(lines[index - 3 : index + 1]) + "\n", ""))
    assert default.privacy.local_epsilon_max == 4.0
    assert explain_cap(default) == []


def test_devices_take_part_in_a_drafted_test_only_with_consent(drafted: Draft) -> None:
    body, name = published(drafted.spec), drafted.spec.name
    with pytest.raises(TermsRefused) as refusal:
        Participation(body, name, Limits())
    assert refusal.value.field == "local_epsilon"
    terms = Participation(body, name, Limits(local_epsilon=5.0)).terms
    assert 4.0 < terms.mechanism.local_epsilon <= 5.0


def test_a_plan_shows_what_caps_give_and_mean(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--seconds", "0.1", "--jobs", "1")
    caps = json.loads(run(capsys, "plan", str(TRIAL), *options, "--json")[1])["caps"]
    assert [row["local_epsilon_max"] for row in caps] == [4.0, 6.0, 8.0]
    assert [row["people_ratio"] < 0.7 for row in caps] == [False, True, True]
    printed = run(capsys, "plan", str(TRIAL), *options)[1]
    assert "what a shuffled report may cost by itself" in printed
    for row in caps:
        assert f"{row['correct_guess_max']:.2%} at most" in printed
