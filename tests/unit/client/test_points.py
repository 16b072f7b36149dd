"""Choices that are points of a set: kept, shown again, and of one size."""

from dataclasses import fields

import msgspec
import numpy as np
import pytest

from privateer_client.ledger.choice import KeptChoice, decode_choice, encode_choice
from privateer_client.participation import Participation
from privateer_core.algorithms.convex.spec import ConvexSpec
from tests.support.experiments import OPEN
from tests.support.publications import published

SPECS = ConvexSpec.instances()


def choice(name: str, coins: int) -> KeptChoice:
    followed = Participation(published(SPECS[name]), "test", OPEN)
    return KeptChoice.made(followed, np.zeros((1, 0)), np.array([coins], np.uint32), 1e6)


@pytest.mark.parametrize("name", ["local", "local-ellipsoid"])
def test_points_are_kept_as_they_were_shown(name: str) -> None:
    made = [choice(name, coins) for coins in range(30)]
    for one in made:
        read = decode_choice(encode_choice(one))
        assert read.shown == one.shown
        assert not read.is_common
        points = list(one.shown.values()) if name == "local" else [one.shown]
        assert SPECS[name].domain.holds(np.array(points))
    assert len({len(encode_choice(one)) for one in made}) == 1
    assert len({repr(one.shown) for one in made}) == 4  # the sides of two axes


def test_a_choice_that_was_kept_before_there_were_points_is_read() -> None:
    made = choice("local", 1)
    tables = msgspec.msgpack.decode(encode_choice(made))
    del tables["points"]
    assert {field.name for field in fields(made)} - set(tables) == {"points"}
    assert decode_choice(msgspec.msgpack.encode(tables)).points.size == 0
