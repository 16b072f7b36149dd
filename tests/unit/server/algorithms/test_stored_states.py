"""States that earlier releases stored, in one record or under other names: they are read."""

import base64
import gzip
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import ALGORITHMS
from privateer_core.answer.parts import BinMeans
from privateer_core.codec import decode, encode
from privateer_core.errors import Malformed
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.partition.state import PartitionState
from tests.support.partitions import same
from tests.support.people import rounds
from tests.support.releases import wild_release
from tests.support.specs import make_spec

STORED = json.loads((Path(__file__).parents[3] / "support" / "partition_states.json").read_text())
PARTS = {
    "tree": ("axes", "depths", "paths", "past_depths", "past_paths"),
    "evidence": ("precision", "moment", "past_precision", "past_moment"),
    "hyperparameters": ("lengths", "spread", "fitted"),
    "posterior": ("mean", "variance", "computed"),
}
SELECTION = ("asked", "open", "gains", "kept", "ended")


@pytest.fixture(params=STORED, ids=[one["name"] for one in STORED])
def stored(request):
    """A spec, and a state as it was stored."""
    spec = make_spec(request.param["changes"], dimension=request.param["dimension"])
    return spec, gzip.decompress(base64.b64decode(request.param["state"]))


def agree(found, field):
    """Whether a value is that of a stored field."""
    if isinstance(found, np.ndarray):
        kind, shape, body = field
        return same(found, np.frombuffer(body, kind).reshape(shape))
    return found == field


def test_every_field_is_found_in_its_part(stored):
    spec, body = stored
    state, fields = decode(body, PartitionState), msgspec.msgpack.decode(body)
    for name in ("rounds", "seen", "own", "active"):
        assert agree(getattr(state, name), fields[name])
    assert (state.cohort, state.reported) == (fields["turn"], fields["heard"])
    for part, names in PARTS.items():
        assert all(agree(getattr(getattr(state, part), name), fields[name]) for name in names)
    assert agree(state.population.shares, fields["mass"])
    assert agree(state.population.precision, fields["mass_precision"])
    for found, field in ((state.discounted, "bank"), (state.window, "earlier"), (state.selection, "screening")):
        assert (found is None) == (fields[field] is None)
    if state.discounted:
        assert all(agree(getattr(state.discounted.evidence, name), fields["bank"][name]) for name in PARTS["evidence"])
        assert all(
            agree(getattr(state.discounted, name), fields["bank"][name]) for name in ("probabilities", "used", "own")
        )
    if state.window:
        assert all(agree(getattr(state.window, name), field) for name, field in fields["earlier"].items())
    if state.selection:
        screening = fields["screening"]
        assert all(agree(getattr(state.selection, name), screening[name]) for name in SELECTION)
        assert all(agree(getattr(state.selection.evidence, name), screening[name]) for name in ("precision", "moment"))
        assert state.selection.evidence.past_precision.shape == (0, spec.arm_count)
        assert agree(state.selection.population.shares, screening["mass"])
        assert agree(state.selection.population.precision, screening["mass_precision"])
    assert same(decode(encode(state), PartitionState), state)


def test_the_experiment_goes_on_and_another_may_begin_with_it(stored):
    spec, body = stored
    learner, state = learner_for(spec), decode(body, PartitionState)
    for known in (state, learner.begun(state, spec)):
        step = learner.next(known, 9, 1)
        step.policy.check(spec)
        after = learner.learn(known, step.policy, wild_release(step.policy, np.random.default_rng(1), 0.3))
        assert after.seen == known.seen + step.batch
    assert learner.answer(state).first_of(BinMeans).bins


@pytest.mark.parametrize("field", ["axes", "precision", "mean", "screening"])
def test_a_damaged_state_is_malformed(field):
    fields = msgspec.msgpack.decode(gzip.decompress(base64.b64decode(STORED[1]["state"])))
    for damage in ({}, {"precision": 3}, {"x": 1}, [], 7, None, "x"):
        body = msgspec.msgpack.encode(fields | {field: damage})
        if (field, damage) != ("screening", None):
            with pytest.raises(Malformed):
                decode(body, PartitionState)


def test_a_state_with_few_fields_of_the_old_form_is_malformed():
    with pytest.raises(Malformed):
        decode(msgspec.msgpack.encode({"axes": 1, "screening": {"x": 1}}), PartitionState)


def earlier(value, names):
    """A stored state as earlier releases named its fields."""
    if isinstance(value, dict):
        return {names.get(name, name): earlier(one, names) for name, one in value.items()}
    return [earlier(one, names) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["bandit", "convex", "linear", "partition", "sparse", "trial"])
def test_fields_are_found_under_the_names_that_they_had(name):
    """States of all instances of an algorithm are read, as they are after their first round."""
    for spec in ALGORITHMS[name].spec.instances().values():
        state = next(rounds(spec, seed=1)).state
        before = {new: old for old, new in state.renamed.items()}
        stored = msgspec.msgpack.encode(earlier(msgspec.msgpack.decode(encode(state)), before))
        assert b"heard" in stored
        assert b"reported" not in stored
        assert same(decode(stored, type(state)), state)
