"""Choices that are points of a set are stored and shown again, in records of equal size."""

from dataclasses import fields

import msgspec
import numpy as np
import pytest

from privateer_client.ledger.choice import encode_choice
from privateer_client.participation import Participation, StoredChoice
from privateer_core.algorithms.convex.spec import ConvexSpec
from privateer_core.codec import decode
from tests.support.experiments import OPEN
from tests.support.publications import published

SPECS = ConvexSpec.instances()


def choice(name: str, coins: int) -> StoredChoice:
    followed = Participation(published(SPECS[name]), "test", OPEN)
    return StoredChoice.decide(followed, np.zeros((1, 0)), np.array([coins], np.uint32), 1e6)


@pytest.mark.parametrize("name", ["local", "local-ellipsoid"])
def test_points_are_kept_as_they_were_shown(name: str) -> None:
    choices = [choice(name, coins) for coins in range(30)]
    for stored in choices:
        read = decode(encode_choice(stored), StoredChoice)
        assert read.display_value == stored.display_value
        assert not read.is_common
        points = list(stored.display_value.values()) if name == "local" else [stored.display_value]
        assert SPECS[name].domain.contains(np.array(points))
    assert len({len(encode_choice(stored)) for stored in choices}) == 1
    assert len({repr(stored.display_value) for stored in choices}) == 4  # the sides of two axes


def test_a_choice_that_was_kept_before_there_were_points_is_read() -> None:
    stored = choice("local", 1)
    tables = msgspec.msgpack.decode(encode_choice(stored))
    del tables["points"]
    assert {field.name for field in fields(stored)} - set(tables) == {"points"}
    assert decode(msgspec.msgpack.encode(tables), StoredChoice).points.size == 0
