"""A server whose coins ask one segment otherwise than the others, or give it an arm of its own: devices refuse it."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from privateer_client.participation import Participation
from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.codec import encode
from privateer_core.errors import Malformed
from privateer_core.privacy.terms_verification import Limits
from privateer_server.rounds.loop import Schedule
from tests.support.publications import published

SPEC = TrialSpec.instances()["local-asked"]
POLICY = Schedule(SPEC).open(7).policy
LIMITS = Limits(epsilon=1.0, arms="hidden")
COINS = np.random.default_rng(1).integers(0, 2**32, 2_000, dtype=np.uint32)
REWARD, EVERYBODY, MEMBER = 0, 3, 6
"""Where the groups of a question begin, of three arms each."""


def moved(row: int | slice, edge: int | slice, by: int) -> TrialPolicy:
    """A policy that is consistent in itself, with some thresholds moved."""
    edges = POLICY.choice.thresholds.astype(np.int64)
    edges[row, edge] += by
    choice = replace(POLICY.choice, thresholds=edges.astype(np.uint32))
    mechanism = msgspec.structs.replace(POLICY.mechanism, layout=choice)
    return replace(POLICY, choice=choice, terms=replace(POLICY.terms, mechanism=mechanism))


def follow(policy: TrialPolicy) -> Participation:
    return Participation(published(SPEC, policy=msgspec.msgpack.decode(encode(policy))), SPEC.name, LIMITS)


BAD = {
    "more of one segment are asked for the reward": moved(1, REWARD + 2, 300),
    "fewer of all are asked for the reward": moved(slice(None), REWARD + 2, -300),
    "more of one segment are asked whether they are in it": moved(1, EVERYBODY + 2, -300),
    "an arm of one segment's own where everybody is asked about": moved(1, EVERYBODY, 4_000),
    "by as little as one part of 65,536": moved(1, EVERYBODY, 1),
    "another arm for those who are asked for their segment": moved(slice(None), MEMBER, 500),
    "everybody's answers have other arms than their coins": moved(-1, EVERYBODY, 500),
    "nobody is asked about everybody": replace(POLICY, questions=(POLICY.questions[0], POLICY.questions[2])),
    "all are asked all": replace(POLICY, questions=()),
}


@pytest.mark.parametrize("what", BAD)
def test_a_device_refuses_questions_that_are_not_everybodys(what: str) -> None:
    with pytest.raises(Malformed, match="not a trial policy"):
        follow(BAD[what])


def test_a_device_follows_what_a_learner_makes() -> None:
    follow(POLICY)


def segments_by_arms(policy: TrialPolicy) -> np.ndarray:
    """How often coins and arm of a person asked about everybody tell the first segment from two others."""
    asked = policy.choice.group(policy.choice.hashes(COINS, np.array([6])), np.full(len(COINS), 6)) // 3 == 1
    arms = [policy.decide(np.full((len(COINS), 2), place), COINS).arms[asked] for place in (0.05, 0.2, 0.4)]
    return np.array([(arms[0] != arms[1]).mean(), (arms[0] != arms[2]).mean()])


def test_what_such_a_server_would_learn() -> None:
    """Planted: the arm of one segment's own tells it from the others in a third of its people who are asked."""
    assert segments_by_arms(POLICY).tolist() == [0, 0]
    own, alike = segments_by_arms(BAD["an arm of one segment's own where everybody is asked about"])
    assert own > 0.2
    assert alike == 0


def test_an_answer_about_everybody_is_the_same_whatever_the_segment() -> None:
    """People of all segments with the same coins and reward contribute the same, to the last bit."""
    rewards = np.linspace(0, 1, len(COINS))
    told = []
    for place in (0.05, 0.4, 0.9):
        contexts = np.full((len(COINS), 2), place)
        told.append(POLICY.contribute(contexts, COINS, POLICY.decide(contexts, COINS), rewards))
    asked = told[0].keys == SPEC.segment_count
    assert asked.mean() == pytest.approx(0.2, abs=0.04)  # four standard errors
    for one in told[1:]:
        for name in ("keys", "groups", "values"):
            assert (getattr(one, name)[asked] == getattr(told[0], name)[asked]).all()
    assert (told[0].keys[~asked] != told[1].keys[~asked]).all()
