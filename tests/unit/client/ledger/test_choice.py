"""What is kept of a choice: until when, and in how many bytes."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_client.ledger.choice import KeptChoice, decode_choice, encode_choice
from privateer_client.participation import Participation, meaning
from privateer_core.errors import InputError, Malformed
from privateer_core.privacy.terms_verification import Limits
from tests.support.experiments import OPEN, WEEK, waiting_spec
from tests.support.publications import published
from tests.support.specs import make_spec

NOW = 1_000_000.0


def choice(window: float = WEEK) -> KeptChoice:
    followed = Participation(published(waiting_spec(**{"experiment.conversion_window": window})), "test", OPEN)
    return KeptChoice.made(followed, np.array([[0.25, 0.5]]), np.array([7], np.uint32), NOW)


@pytest.mark.parametrize("window", [1.0, 90.0, 3600.0, WEEK, 365 * 86_400.0])
def test_a_report_is_due_when_the_window_is_over_and_kept_no_finer_than_a_hundredth(window: float) -> None:
    made = choice(window)
    assert NOW + window <= made.due <= NOW + window + max(1.0, window / 100)
    assert made.due % max(1.0, window / 100) == pytest.approx(0, abs=1e-6)
    assert not made.is_due(made.due - 0.5)
    assert made.is_due(made.due)


def test_outcomes_replace_each_other_until_the_report_is_due() -> None:
    made = choice()
    told = made.with_outcome(np.array([0.5]), NOW).with_outcome(np.array([0.75]), NOW + 5)
    assert (told.rewards[0], told.due) == (0.75, made.due)
    assert told.with_outcome(np.array([1.0]), told.due) is told
    assert made.rewards[0] == 0.0


def test_without_a_window_the_first_outcome_makes_the_report_due() -> None:
    made = choice(0.0)
    assert not made.is_due(1e15)
    told = made.with_outcome(np.array([0.5]), NOW)
    assert told.is_due(NOW)
    assert told.due % 86_400 == 0  # the day says enough
    assert told.with_outcome(np.array([1.0]), NOW) is told


def test_a_choice_is_read_as_it_was_written() -> None:
    made = choice()
    read = decode_choice(encode_choice(made))
    assert (read.shown, read.decided, read.digest, read.due) == (made.shown, 1, made.digest, made.due)
    assert read.decisions.arms == made.decisions.arms  # type: ignore[union-attr]
    np.testing.assert_array_equal(read.contexts, made.contexts)
    for body in (b"", b"\xff", encode_choice(made)[:-1]):
        with pytest.raises(Malformed):
            decode_choice(body)


def test_a_choice_that_is_too_large_is_refused() -> None:
    large = replace(choice(), contexts=np.zeros((1, 200_000)))
    with pytest.raises(InputError) as refusal:
        encode_choice(large)
    assert refusal.value.field == "context"


def test_names_of_arms_take_the_same_room() -> None:
    names = ["a", "ä" * 64, "名" * 64]
    spec = make_spec({"experiment.arms": names})
    followed = Participation(published(spec), "test", Limits())
    made = [KeptChoice.made(followed, np.zeros((1, 2)), np.array([coins], np.uint32), NOW) for coins in range(60)]
    assert {one.shown for one in made} == set(names)
    assert len({len(encode_choice(one)) for one in made}) == 1


def test_what_an_operator_may_change_keeps_the_meaning() -> None:
    spec = make_spec()
    same = [{"experiment.horizon": 30_000}, {"experiment.retired": ["arm-2"]}, {"experiment.conversion_window": 5.0}]
    others = [{"reward.low": -1.0}, {"privacy.epsilon": 0.5}, {"experiment.arms": ["arm-0", "x", "arm-2"]}]
    others += [{"context.features": {"x1": {"low": 0.0, "high": 1.0}}}]
    assert {meaning(make_spec(changes)) for changes in same} == {meaning(spec)}
    assert len({meaning(make_spec(changes)) for changes in [{}, *others]}) == 5
    more = make_spec({"experiment.arms": ["arm-0", "arm-1", "arm-2", "new"]})
    assert meaning(more, 3) == meaning(spec) != meaning(more)
