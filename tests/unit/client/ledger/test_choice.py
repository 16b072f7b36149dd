"""Stored choices: their deadlines, and their sizes in bytes."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_client.ledger.choice import encode_choice
from privateer_client.participation import Participation, StoredChoice
from privateer_client.publication_parts import meaning
from privateer_core.codec import decode
from privateer_core.errors import InputError, Malformed
from privateer_core.privacy.terms_verification import Limits
from tests.support.experiments import OPEN, WEEK, waiting_spec
from tests.support.publications import published
from tests.support.specs import make_spec

NOW = 1_000_000.0


def choice(window: float = WEEK) -> StoredChoice:
    followed = Participation(published(waiting_spec(**{"experiment.conversion_window_seconds": window})), "test", OPEN)
    return StoredChoice.decide(followed, np.array([[0.25, 0.5]]), np.array([7], np.uint32), NOW)


@pytest.mark.parametrize("window", [1.0, 90.0, 3600.0, WEEK, 365 * 86_400.0])
def test_a_report_is_due_when_the_window_is_over_and_kept_no_finer_than_a_hundredth(window: float) -> None:
    stored = choice(window)
    assert NOW + window <= stored.due <= NOW + window + max(1.0, window / 100)
    assert stored.due % max(1.0, window / 100) == pytest.approx(0, abs=1e-6)
    assert not stored.is_due(stored.due - 0.5)
    assert stored.is_due(stored.due)


def test_outcomes_replace_each_other_until_the_report_is_due() -> None:
    stored = choice()
    updated = stored.with_outcome(np.array([0.5]), NOW).with_outcome(np.array([0.75]), NOW + 5)
    assert (updated.rewards[0], updated.due) == (0.75, stored.due)
    assert updated.with_outcome(np.array([1.0]), updated.due) is updated
    assert stored.rewards[0] == 0.0


def test_without_a_window_the_first_outcome_makes_the_report_due() -> None:
    stored = choice(0.0)
    assert not stored.is_due(1e15)
    updated = stored.with_outcome(np.array([0.5]), NOW)
    assert updated.is_due(NOW)
    assert updated.due % 86_400 == 0  # the day says enough
    assert updated.with_outcome(np.array([1.0]), NOW) is updated


def test_a_choice_is_read_as_it_was_written() -> None:
    stored = choice()
    read = decode(encode_choice(stored), StoredChoice)
    assert (read.display_value, read.decided) == (stored.display_value, 1)
    assert (read.digest, read.due) == (stored.digest, stored.due)
    assert read.decisions.arms == stored.decisions.arms  # type: ignore[union-attr]
    np.testing.assert_array_equal(read.contexts, stored.contexts)
    for body in (b"", b"\xff", encode_choice(stored)[:-1]):
        with pytest.raises(Malformed):
            decode(body, StoredChoice)


def test_a_choice_that_is_too_large_is_refused() -> None:
    large = replace(choice(), contexts=np.zeros((1, 200_000)))
    with pytest.raises(InputError) as refusal:
        encode_choice(large)
    assert refusal.value.field == "context"


def test_stored_choices_have_one_size_whatever_the_arms_name() -> None:
    names = ["a", "ä" * 64, "名" * 64]
    spec = make_spec({"experiment.arms": names})
    followed = Participation(published(spec), "test", Limits())
    choices = [StoredChoice.decide(followed, np.zeros((1, 2)), np.array([n], np.uint32), NOW) for n in range(60)]
    assert {stored.display_value for stored in choices} == set(names)
    assert len({len(encode_choice(stored)) for stored in choices}) == 1


def test_changes_that_an_operator_may_make_keep_the_meaning() -> None:
    spec = make_spec()
    harmless = [
        {"experiment.horizon": 30_000},
        {"experiment.retired_arms": ["arm-2"]},
        {"experiment.conversion_window_seconds": 5.0},
    ]
    others = [{"reward.low": -1.0}, {"privacy.epsilon": 0.5}, {"experiment.arms": ["arm-0", "x", "arm-2"]}]
    others += [{"context.features": {"x1": {"low": 0.0, "high": 1.0}}}]
    assert {meaning(make_spec(changes)) for changes in harmless} == {meaning(spec)}
    assert len({meaning(make_spec(changes)) for changes in [{}, *others]}) == 5
    partition_spec = make_spec({"experiment.arms": ["arm-0", "arm-1", "arm-2", "new"]})
    assert meaning(partition_spec, 3) == meaning(spec) != meaning(partition_spec)
