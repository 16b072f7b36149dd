"""A server asks a segment other questions than the rest, or asks for more than it promised."""

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from privateer_client import Ledger, ReportStatus
from privateer_client.participation import Participation
from privateer_core.algorithms.trial import TrialPolicy, TrialSpec
from privateer_core.codec import encode
from privateer_core.errors import Malformed, SpecError, TermsRefused
from privateer_core.mechanisms.mechanism import REPORT
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import mix_words, words_to_normals
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.terms_verification import Limits
from privateer_server.rounds.schedule import Schedule
from privateer_shuffler.app import create_app
from privateer_shuffler.settings import ShufflerSettings
from tests.support import publications
from tests.support.asgi import serving
from tests.support.experiments import CONTEXT, WEEK, Device, Server, waiting_spec
from tests.support.publications import published
from tests.support.records import SPECS, record_of
from tests.support.senders import TRUSTED
from tests.support.specs import linear_spec
from tests.unit.shuffler.fake_server import FakeServer
from tests.unit.shuffler.helpers import Shuffler, sealed_reports

# A server whose coins ask one segment otherwise than the others, or give it an arm of its own: devices refuse it.


SPEC = TrialSpec.instances()["local-asked"]
POLICY: TrialPolicy = Schedule(SPEC).open(7).policy
LIMITS = Limits(epsilon=1.0, arm_visibility="hidden")
COINS = np.random.default_rng(1).integers(0, 2**32, 2_000, dtype=np.uint32)
REWARD, EVERYBODY, MEMBER = 0, 3, 6
"""Where the groups of a question begin, of three arms each."""


def policy_with_moved_thresholds(row: int | slice, edge: int | slice, by: int) -> TrialPolicy:
    """Return a policy that is consistent in itself, with thresholds that are shifted by ``by``."""
    edges = POLICY.choice.thresholds.astype(np.int64)
    edges[row, edge] += by
    choice = replace(POLICY.choice, thresholds=edges.astype(np.uint32))
    mechanism = msgspec.structs.replace(POLICY.mechanism, layout=choice)
    return replace(POLICY, choice=choice, terms=replace(POLICY.terms, mechanism=mechanism))


def follow(policy: TrialPolicy) -> Participation:
    return Participation(published(SPEC, policy=msgspec.msgpack.decode(encode(policy))), SPEC.name, LIMITS)


UNEQUAL_POLICIES = {
    "more of one segment are asked for the reward": policy_with_moved_thresholds(1, REWARD + 2, 300),
    "fewer of all are asked for the reward": policy_with_moved_thresholds(slice(None), REWARD + 2, -300),
    "more of one segment are asked whether they are in it": policy_with_moved_thresholds(1, EVERYBODY + 2, -300),
    "an arm of one segment's own where everybody is asked about": policy_with_moved_thresholds(1, EVERYBODY, 4_000),
    "by as little as one part of 65,536": policy_with_moved_thresholds(1, EVERYBODY, 1),
    "another arm for those who are asked for their segment": policy_with_moved_thresholds(slice(None), MEMBER, 500),
    "everybody's answers have other arms than their coins": policy_with_moved_thresholds(-1, EVERYBODY, 500),
    "nobody is asked about everybody": replace(POLICY, questions=(POLICY.questions[0], POLICY.questions[2])),
    "all are asked all": replace(POLICY, questions=()),
}


@pytest.mark.parametrize("defect", UNEQUAL_POLICIES)
def test_a_device_refuses_unequal_questions(defect: str) -> None:
    with pytest.raises(Malformed, match="not a trial policy"):
        follow(UNEQUAL_POLICIES[defect])


def test_a_device_follows_the_policy_of_a_learner() -> None:
    follow(POLICY)


def arm_differences(policy: TrialPolicy) -> np.ndarray:
    """Return how often the arms of the first segment differ from the second's and third's, if all are asked alike."""
    is_asked = policy.choice.find_groups(policy.choice.hashes(COINS, np.array([6])), np.full(len(COINS), 6)) // 3 == 1
    arms = [policy.decide(np.full((len(COINS), 2), place), COINS).arms[is_asked] for place in (0.05, 0.2, 0.4)]
    return np.array([(arms[0] != arms[1]).mean(), (arms[0] != arms[2]).mean()])


def test_an_arm_of_one_segment_alone_tells_the_segment() -> None:
    """Planted: an arm that a segment alone may get tells a third of its participants from the other segments."""
    assert arm_differences(POLICY).tolist() == [0, 0]
    differences = arm_differences(UNEQUAL_POLICIES["an arm of one segment's own where everybody is asked about"])
    assert differences[0] > 0.2
    assert differences[1] == 0


def test_an_answer_about_everybody_does_not_depend_on_the_segment() -> None:
    """People of all segments with the same coins and reward contribute the same, to the last bit."""
    rewards = np.linspace(0, 1, len(COINS))
    contributions = []
    for place in (0.05, 0.4, 0.9):
        contexts = np.full((len(COINS), 2), place)
        contributions.append(POLICY.contribute(contexts, COINS, POLICY.decide(contexts, COINS), rewards))
    is_asked = contributions[0].keys == SPEC.segment_count
    assert is_asked.mean() == pytest.approx(0.2, abs=0.04)  # four standard errors
    for contribution in contributions[1:]:
        for name in ("keys", "groups", "values"):
            assert (getattr(contribution, name)[is_asked] == getattr(contributions[0], name)[is_asked]).all()
    assert (contributions[0].keys[~is_asked] != contributions[1].keys[~is_asked]).all()


# A server asks people for several messages, and says that they are fewer, or that they cost less than they do.


SPEC_OF_MESSAGES = SPECS["messages"]


def local_epsilon_of_one_message() -> float:
    """Local epsilon of one of three messages."""
    _, policy = publications.parts(SPEC_OF_MESSAGES)
    return float(policy["terms"]["mechanism"]["epsilon"])


def follow_round(limit: float = math.inf, mechanism: dict[str, Any] | None = None, **round_: Any) -> Participation:
    body = publications.published(SPEC_OF_MESSAGES, mechanism=mechanism, round_=round_)
    return Participation(body, "test", Limits(local_epsilon=limit))


def test_a_device_counts_all_messages_against_its_limit() -> None:
    """Planted: a limit that allows two of the three messages."""
    assert follow_round(3 * local_epsilon_of_one_message()).terms.local_epsilon == 3 * local_epsilon_of_one_message()
    with pytest.raises(TermsRefused, match="this device allows") as error_info:
        follow_round(2.5 * local_epsilon_of_one_message())
    assert error_info.value.field == "local_epsilon"


@pytest.mark.parametrize("repeats", [-3, 0, 4, 17, 1 << 40, 2.5, math.nan, None, True, "3", 3 * [1]])
def test_other_numbers_of_messages_are_refused(repeats: Any) -> None:
    for terms in ({}, {"messages": repeats} if repeats in (4, 17) else {}):
        with pytest.raises((TermsRefused, Malformed)):
            follow_round(mechanism={"repeats": repeats}, **terms)


@pytest.mark.parametrize("terms", [{"messages": 1}, {"messages": 2}, {"messages": 6}, {"messages": 3, "groups": 3}])
def test_rounds_of_other_messages_than_the_mechanism_are_refused(terms: dict[str, int]) -> None:
    with pytest.raises(TermsRefused, match="disagree"):
        follow_round(**terms)


def test_messages_whose_sum_breaks_the_promise_are_refused() -> None:
    """Each keeps it by itself: the device must compose them."""
    assert follow_round(mechanism={"repeats": 1}, messages=1).terms.true_delta < 0.1 * SPEC_OF_MESSAGES.privacy.delta
    with pytest.raises(TermsRefused, match="delta is"):
        follow_round(mechanism={"epsilon": 1.25 * local_epsilon_of_one_message()})


def test_a_crowd_of_millions_costs_a_device_no_more_than_a_large_one() -> None:
    """Composing events of 90 million people would take it minutes."""
    vector_symbol = VectorSymbol(Ball("l2", 1.0, 9), 2.0, 8, 2, 3, repeats=2)
    assert (
        vector_symbol.batch_event(90_000_000) == vector_symbol.batch_event(20_000) != vector_symbol.batch_event(19_900)
    )


def test_records_of_rounds_of_other_sizes_hold_and_no_cheaper_ones_do() -> None:
    """The certificate covers the messages of three rounds, but no cheaper mechanism, and not fewer rounds."""
    record = record_of("messages", 3)
    events = {(row["honest"], row["mechanism"]["epsilon"]) for row in record["rounds"]}
    assert len(events) > 1
    assert read_certificates(record)[""].experiment == "test"
    for change in ({"repeats": 2}, {"repeats": 1}, {"epsilon": local_epsilon_of_one_message() / 2}):
        changed = record_of("messages", 3)
        changed["rounds"][0]["mechanism"] |= change
        with pytest.raises(SpecError):
            read_certificates(changed)
    record["certificate"] = record_of("messages", 1)["certificate"]
    with pytest.raises(SpecError, match="does not cover"):
        read_certificates(record)


# A server whose matrix sends some people's contexts to 0, so that they have no direction to tell.
#
# Whether a device reports must not tell who has such a context: a report is made of every one.


ALLOWS = {"local": Limits(), "shuffle": Limits(local_epsilon=10.0), "central": Limits(allow_central=True)}
SUMS = np.ones((2, 2))
"""The row of whoever says no, (1, -1), times this is 0."""


def observe(folder: Path, model: str, value: bool) -> tuple[ReportStatus, list[int], Any]:
    """Return the report's status, the sizes of reports, and the ledger's payments."""
    folder.mkdir()
    spec = linear_spec(model, {"smoker": {"boolean": True}})
    server = Server(published(spec, policy={"whitening": (SUMS.dtype.str, SUMS.shape, SUMS.tobytes())}))
    device = Device(folder, server, limits=ALLOWS[model], shuffler="http://shuffler")
    session = device.start().join("test")
    session.choose({"smoker": value})
    return session.report(1.0), [len(body) for body in server.posts], device.ledger().payments()


@pytest.mark.parametrize("model", ALLOWS)
def test_traffic_and_payments_do_not_depend_on_the_direction(tmp_path: Path, model: str) -> None:
    no, yes = (observe(tmp_path / str(value), model, value) for value in (False, True))
    assert no == yes
    assert no[0] is ReportStatus.ACCEPTED


# A sender who chooses the coins could find some whose public direction had an infinite coordinate.
#
# Coins are mixed by a bijection, so that they can be searched from the result backwards: 32 bits and a direction of 300
# coordinates have some in one round of 15. One such report moved a sum by 2^33 times its share.


SEED, COINS_OF_DIRECTIONS, INDEX = 15316763083964532669, 521360233, 116
"""Found in a second: the 113th coordinate of this direction has the largest of all words."""


def test_coins_with_an_extreme_direction_move_no_sum_by_more_than_a_share() -> None:
    mechanism = VectorSymbol.calibrated(Ball("l2", 1.0, 300), 8.0, SEED)
    word = mix_words(
        mix_words(np.array([COINS_OF_DIRECTIONS + SEED], np.uint64)) ^ mix_words(np.array([INDEX], np.uint64))
    )
    words = mix_words(word + np.arange(301, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95))
    assert words.max() >> np.uint64(11) == (1 << 53) - 1
    report = np.array([(COINS_OF_DIRECTIONS, 2 * INDEX + 1)], REPORT)
    total = mechanism.add(mechanism.empty(), mechanism.parse(report.tobytes()))
    assert np.abs(total.sums).max() <= 1 << 30


def test_every_word_maps_to_a_finite_normal_number() -> None:
    words = np.array([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 2049, (1 << 64) - 2048, (1 << 64) - 1], np.uint64)
    numbers = words_to_normals(words)
    assert np.isfinite(numbers).all()
    assert (np.diff(numbers) >= 0).all()


# An operator raises the fewest reports that a shuffler releases: a round that it holds already is bound by it.


async def test_a_raised_minimum_batch_applies_to_a_held_round(tmp_path: Path) -> None:
    server, data = FakeServer(), tmp_path / "data"
    settings = ShufflerSettings(
        server_url="http://server", data=data, public_key_file=data / "shuffler.pub", min_batch=2, sender_keys=TRUSTED
    )
    transport = httpx.ASGITransport(server.app)
    header, reports = server.publish(batch=4), sealed_reports(4)
    async with serving(create_app(settings, transport)) as client:
        assert (await Shuffler(client, server).post(header, reports[:3])).status_code == 202
    async with serving(create_app(settings.model_copy(update={"min_batch": 100}), transport)) as client:
        answer = await Shuffler(client, server).post(header, reports[3:])
        assert answer.status_code == 422
        assert "releases no fewer than PRIVATEER_MIN_BATCH=100" in answer.text
    assert not server.delivered


# An application shows the default, since the arm came too late: what did the device do behind its back?


class _SlowLedger(Ledger):
    """A ledger on a disk that takes its time."""

    def change_choice(self, *arguments: Any, **options: Any) -> Any:
        time.sleep(0.5)
        return super().change_choice(*arguments, **options)


class _SlowDevice(Device):
    def ledger(self, **options: Any) -> Ledger:
        return _SlowLedger(self.folder / "ledger.db", clock=self.clock, **options)


def test_an_arm_chosen_after_the_default_was_shown_is_not_reported(tmp_path: Path) -> None:
    """The server is fast, and the choice itself takes longer than the page waits."""
    server = Server(published(waiting_spec()))
    device = _SlowDevice(tmp_path, server)
    client = device.start()
    arm = client.arm("test", CONTEXT, default="default", within=0.4)
    assert (arm.name, arm.report(1.0)) == ("default", ReportStatus.NOT_REQUESTED)
    time.sleep(1.0)
    device.clock.time += 1.1 * WEEK
    device.start().flush()
    assert (server.posts, device.ledger().payments()) == ([], [])
