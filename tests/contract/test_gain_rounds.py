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
from privateer_core.policies.gain_policy import GainPolicy, decode_policy
from privateer_core.policies.policy import sealed_size
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record import Row, describe_terms, make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.terms_verification import Limits
from privateer_core.privacy.trust import Crowd
from privateer_core.spec.arms import ArmsSpec
from privateer_core.wire.publication import Publication, Round, encode_publication
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.algorithms import learner_for
from tests.contract.instances import SPECS, draw_people
from tests.documents.vectors import KEY
from tests.support.partitions import same
from tests.support.people import rounds

pytestmark = pytest.mark.battery(of="gain rounds")

WIDE = Limits(math.inf, 0.3, math.inf, honest_fraction=1.0, min_batch=1, arm_visibility="hidden", allow_central=True)
PUBLIC = KEY.public_key().public_bytes_raw()


def with_gain_round(spec: Any) -> Any:
    """The spec with people who measure the gain; None where that cannot be."""
    chooses = isinstance(spec, ArmsSpec) and spec.capabilities.further_questions and not spec.privacy.trust.is_simulated
    if not chooses or spec.experiment.reports_per_person > 1 or spec.sources or spec.privacy.tiers:
        return None
    data = spec.model_dump(mode="json", exclude_none=True)
    data["experiment"]["evaluation_fraction"] = 0.2
    # A promise of normal noise is kept by reports that need no delta.
    data["privacy"]["delta"] = 0.0 if spec.privacy.trust.crowd is Crowd.NOBODY else data["privacy"].get("delta", 0.0)
    return parse_spec(data) if data["algorithm"].get("report_statistic") != "joint" else None


MEASURING = {name: measured for name, spec in SPECS.items() if (measured := with_gain_round(spec))}


@pytest.fixture(scope="module", params=MEASURING)
def turns(request: Any) -> tuple[Any, list[Any]]:
    spec = MEASURING[request.param]
    return spec, list(rounds(spec, seed=1))


def publish_round(spec: Any, step: Any) -> bytes:
    terms = step.policy.terms
    facts = Round(
        *(spec.name, step.policy.version, spec.privacy.model, terms.batch_size, sealed_size(step.policy), PUBLIC),
        messages=terms.messages,
        groups=terms.mechanism.groups,
    )
    return encode_publication(Publication(facts, spec.model_dump_json().encode(), encode(step.policy)))


def test_every_algorithm_that_chooses_by_context_has_a_gain_round_under_each_trust_model() -> None:
    kinds = {name: algorithm(name).spec for name in ALGORITHMS}
    askable = {name for name, kind in kinds.items() if kind.capabilities.further_questions}
    models = {(spec.algorithm.name, spec.privacy.model) for spec in MEASURING.values()}
    assert {"partition", "linear", "sparse"} <= {name for name, _ in models} <= askable
    assert all((name, model) in models for name in ("partition", "linear", "sparse") for model in ("none", "local"))
    assert all(
        (name, model) in models for name in ("partition", "linear", "sparse") for model in ("shuffle", "central")
    )


def test_the_last_round_measures_and_its_state_and_policy_travel(turns: Any) -> None:
    spec, all_ = turns
    assert [isinstance(turn.policy, GainPolicy) for turn in all_] == [False] * (len(all_) - 1) + [True]
    last, learner = all_[-1], learner_for(spec)
    assert last.step.batch_size == spec.gain_people
    for state in (learner.start(5), last.step.state, last.state):
        assert same(decode(encode(state), learner.state_type), state)
    kind = algorithm(spec.algorithm.name).policy
    assert same(decode_policy(encode(last.policy), kind), last.policy)
    answer = learner.answer(last.state)
    assert answer.gain.people == spec.gain_people
    assert answer.stage == "ended"
    assert max(turn.step.batch_size for turn in all_) <= max(v.people for v in learner.list_round_volumes(all_[0].step))


def test_a_device_verifies_the_round_and_derives_its_epsilon(turns: Any) -> None:
    spec, all_ = turns
    last = all_[-1]
    followed = Participation(publish_round(spec, last.step), spec.name, WIDE)
    assert followed.is_report_requested
    assert followed.terms.keeps_promise
    mechanism: Any = followed.terms.mechanism
    contexts, coins, decisions, rewards = draw_people(spec, last.policy, 50)
    rows = mechanism.randomize(last.policy.contribute(contexts, coins, decisions, rewards), SeededNoise(1))
    assert {len(row.tobytes()) for row in rows} == {mechanism.report_size}
    # It takes reports on its own decisions alone, which say nothing to rounds of the learner.
    assert [followed.accepts_version(version) for version in (1, last.policy.version, last.policy.version + 1)] == [
        False,
        True,
        False,
    ]


def test_a_device_refuses_the_round_with_less_noise(turns: Any) -> None:
    spec, all_ = turns
    if not spec.privacy.trust.promises:
        return
    policy = all_[-1].policy
    weak = replace(policy, terms=replace(policy.terms, mechanism=policy.terms.mechanism.with_less_noise(2.0)))
    with pytest.raises(TermsRefused):
        Participation(publish_round(spec, replace(all_[-1].step, policy=weak)), spec.name, WIDE)


def test_the_record_has_the_round_and_its_certificate_covers_it(turns: Any) -> None:
    spec, all_ = turns
    rows = [
        Row(
            **msgspec.structs.asdict(describe_terms(turn.policy.terms)),
            version=index + 1,
            received=turn.step.batch_size,
            released=True,
        )
        for index, turn in enumerate(all_)
    ]
    record = make_record(spec, {"": rows})
    decoded = msgspec.json.decode(msgspec.json.encode(record))
    for certificate in read_certificates(decoded).values():
        assert all(verdict.holds for verdict in recompute(certificate))


def test_coins_of_a_report_are_never_those_of_the_choice(turns: Any) -> None:
    _, all_ = turns
    policy = all_[-1].policy
    assert policy.has_fresh_coins
    assert not policy.tells_age
