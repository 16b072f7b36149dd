"""Every algorithm that chooses by context measures its gain under every trust model, and devices verify that round."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from privateer_client.participation import Participation
from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.codec import decode, encode
from privateer_core.errors import TermsRefused
from privateer_core.policies.decisions import message_size
from privateer_core.policies.gain_policy import GainPolicy, decode_policy
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record import Row, make_record, planned_of
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.arms import ArmsSpec
from privateer_core.wire.publication import Publication, Round, encode_publication
from privateer_lab.simulation.devices import SeededNoise
from privateer_server.algorithms import learner_for
from tests.contract.instances import SPECS, people_of
from tests.documents.vectors import KEY
from tests.support.partitions import same
from tests.support.people import rounds

pytestmark = pytest.mark.battery(of="gain rounds")

WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arms="hidden", curator=True)
PUBLIC = KEY.public_key().public_bytes_raw()


def measuring(spec: Any) -> Any:
    """The spec with people who measure the gain; None where that cannot be."""
    chooses = (
        isinstance(spec, ArmsSpec) and spec.capabilities.further_questions and spec.privacy.trust.calibration == "tight"
    )
    if not chooses or spec.experiment.reports_per_person > 1 or spec.sources:
        return None
    data = spec.model_dump(mode="json", exclude_none=True)
    data["experiment"]["gain_share"] = 0.2
    # A promise of normal noise is kept by reports that need no delta.
    data["privacy"]["delta"] = 0.0 if spec.privacy.trust.draws_one else data["privacy"].get("delta", 0.0)
    return parse_spec(data) if data["algorithm"].get("report") != "joint" else None


MEASURING = {name: made for name, spec in SPECS.items() if (made := measuring(spec))}


@pytest.fixture(scope="module", params=MEASURING)
def played(request: Any) -> tuple[Any, list[Any]]:
    spec = MEASURING[request.param]
    return spec, list(rounds(spec, seed=1))


def published(spec: Any, step: Any) -> bytes:
    terms = step.policy.terms
    facts = Round(
        *(spec.name, step.policy.version, spec.privacy.model, terms.batch, 64 + message_size(step.policy), PUBLIC),
        messages=terms.messages,
        groups=terms.mechanism.groups,
    )
    return encode_publication(Publication(facts, spec.model_dump_json().encode(), encode(step.policy)))


def test_all_that_choose_by_context_are_here() -> None:
    kinds = {name: algorithm(name).spec for name in ALGORITHMS}
    asked = {name for name, kind in kinds.items() if kind.capabilities.further_questions}
    models = {(made.algorithm.name, made.privacy.model) for made in MEASURING.values()}
    assert {"partition", "linear", "sparse"} <= {name for name, _ in models} <= asked
    assert all((name, model) in models for name in ("partition", "linear", "sparse") for model in ("none", "local"))
    assert all(
        (name, model) in models for name in ("partition", "linear", "sparse") for model in ("shuffle", "central")
    )


def test_the_last_round_measures_and_its_state_and_policy_travel(played: Any) -> None:
    spec, all_ = played
    assert [isinstance(one.policy, GainPolicy) for one in all_] == [False] * (len(all_) - 1) + [True]
    last, learner = all_[-1], learner_for(spec)
    assert last.step.batch == spec.gain_people
    for state in (learner.start(5), last.step.state, last.state):
        assert same(decode(encode(state), learner.state_type), state)
    kind = algorithm(spec.algorithm.name).policy
    assert same(decode_policy(encode(last.policy), kind), last.policy)
    answer = learner.answer(last.state)
    assert answer.gain is not None
    assert answer.gain.people == spec.gain_people
    assert answer.status == "ended"
    assert max(one.step.batch for one in all_) <= max(most.people for most in learner.bulk(all_[0].step))


def test_a_device_verifies_the_round_and_derives_its_epsilon(played: Any) -> None:
    spec, all_ = played
    last = all_[-1]
    followed = Participation(published(spec, last.step), spec.name, WIDE)
    assert followed.asks
    assert followed.terms.holds
    mechanism: Any = followed.terms.mechanism
    contexts, coins, decisions, rewards = people_of(spec, last.policy, 50)
    rows = mechanism.randomize(last.policy.contribute(contexts, coins, decisions, rewards), SeededNoise(1))
    assert {len(row.tobytes()) for row in rows} == {mechanism.report_size}
    # It takes reports on its own decisions alone, which say nothing to rounds of the learner.
    assert [followed.takes(version) for version in (1, last.policy.version, last.policy.version + 1)] == [
        False,
        True,
        False,
    ]


def test_a_device_refuses_the_round_with_less_noise(played: Any) -> None:
    spec, all_ = played
    if not spec.privacy.trust.promises:
        return
    policy = all_[-1].policy
    weak = replace(policy, terms=replace(policy.terms, mechanism=policy.terms.mechanism.weaker(2.0)))
    with pytest.raises(TermsRefused):
        Participation(published(spec, replace(all_[-1].step, policy=weak)), spec.name, WIDE)


def test_the_record_has_the_round_and_its_certificate_covers_it(played: Any) -> None:
    spec, all_ = played
    rows = [
        Row(
            **msgspec.structs.asdict(planned_of(one.policy.terms)),
            version=place + 1,
            received=one.step.batch,
            released=True,
        )
        for place, one in enumerate(all_)
    ]
    record = make_record(spec, {"": rows})
    told = msgspec.json.decode(msgspec.json.encode(record))
    for certificate in read_certificates(told).values():
        assert all(verdict.holds for verdict in recompute(certificate))


def test_coins_of_a_report_are_never_those_of_the_choice(played: Any) -> None:
    _, all_ = played
    policy = all_[-1].policy
    assert policy.fresh_coins
    assert not policy.tells_age
