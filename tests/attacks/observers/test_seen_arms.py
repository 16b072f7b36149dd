"""An adversary sees a participant's arms, coins or messages beside the report."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from privateer_client import ReportStatus
from privateer_client.client import Client
from privateer_client.ledger.ledger import Ledger
from privateer_client.participation import Participation
from privateer_core.accounting.events import Pure
from privateer_core.algorithms.additive.coin_arms import LEVEL_QUESTION, CoinArms
from privateer_core.algorithms.additive.policy import TERM_UNIT, AdditivePolicy
from privateer_core.errors import Malformed, TermsRefused
from privateer_core.policies.gain_policy import COMPARED_COINS
from privateer_core.policies.policy import Arms
from privateer_core.primitives.public_coins import UNIT
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.context import encode_features
from privateer_core.spec.privacy import Privacy
from privateer_lab.audit.attacks.partition import as_local_cases, visible_arm_cases
from privateer_lab.audit.case import Case
from privateer_lab.audit.law import LowerBounds, Scores, bound_losses
from privateer_lab.audit.likelihoods import log_likelihood
from privateer_lab.audit.suite import FALSE_ALARM, AuditFinding, _run_attack
from privateer_lab.audit.whole_experiments import gain_cases, gain_contributor
from privateer_lab.audit.whole_experiments import gain_policy as policy_of_gain
from privateer_lab.simulation.scores import SeededNoise
from tests.support.experiments import CONTEXT, OTHER, WEEK, Device, Server
from tests.support.notary import notarized
from tests.support.publications import OVER, draining, published, shuffle_spec
from tests.support.specs import make_spec
from tests.support.statistics import FALSE_ALARM as FALSE_ALARM_OF_GAIN
from tests.support.statistics import realised_epsilon
from tests.unit.algorithms.test_coin_arms import policy_of

# Somebody who sees coins, symbol and arm of a person where no crowd hides a report: what each group of coins tells.
#
# Coins divide people into groups. Some get an arm by them and say a reward or a residual; others get the best one and
# say
# a residual with their arm; others only say which cell of a feature they are in.


EPSILON = 1.0
ALARM = 1e-6
"""Chance that one true claim is called broken."""
COINS = np.random.default_rng(11).integers(0, 2**32, 800_000, dtype=np.uint32)
COUNT = 40_000
HALF = round(0.5 / TERM_UNIT)
CERTAIN = 50.0
"""Score of an arm that only one of the neighbours can have."""


class Person(NamedTuple):
    """One neighbour: an age, a job, a size, a membership, and a reward."""

    values: tuple[float, float, float, float]
    reward: float


HERE, THERE = (5.0, 0.0, 0.0, 0.0), (75.0, 2.0, 2.0, 1.0)
PAIRS = {
    "opposite rewards": (Person(HERE, 1.0), Person(HERE, 0.0)),
    "another context": (Person(HERE, 1.0), Person(THERE, 1.0)),
    "all different": (Person(HERE, 1.0), Person(THERE, 0.0)),
}
GROUPS: dict[str, Callable[[Any], Any]] = {
    "the reward of an arm by coins": lambda groups: (groups.arms >= 0) & (groups.questions == LEVEL_QUESTION),
    "a residual under an arm by coins": lambda groups: (groups.arms >= 0) & (groups.questions != LEVEL_QUESTION),
    "the best arm and its residual": lambda groups: (
        (groups.arms < 0) & ~groups.is_cell_report & (groups.questions == LEVEL_QUESTION)
    ),
    "the best arm, a cell and a residual": lambda groups: (
        (groups.arms < 0) & ~groups.is_cell_report & (groups.questions != LEVEL_QUESTION)
    ),
    "a cell alone": lambda groups: groups.is_cell_report,
}
SAYS_NOTHING = {
    ("the reward of an arm by coins", "another context"),
    ("the best arm and its residual", "another context"),
    ("a cell alone", "opposite rewards"),
}
"""What a group asks nobody about: both neighbours send the same."""


def scene(moved: int = 0) -> tuple[Any, AdditivePolicy]:
    """A policy that expects half a reward of everybody, so that residuals are -1 and 1: they cannot tell more.

    The second arm is best by one step; ``moved``: steps of drivers' third arm.
    """
    spec, policy = policy_of()
    means = np.zeros_like(policy.means)
    means[:, 0] = HALF
    means[1, 0] += 1
    means[2, spec.questions.cells.feature_slice(1)] += np.array([0, 0, moved, 0], np.int16)
    return spec, replace(policy, means=means, draws=means[None])


def make_proof(policy: AdditivePolicy, spec: Any, group: str, pair: str, factor: float = 1.0) -> LowerBounds:
    """Return the bounds that coins, symbols and arms prove for participants who are in a group by their coins."""
    people, (plan, mechanism) = PAIRS[pair], (policy.plan, policy.terms.mechanism)
    layout: Any = mechanism.layout  # type: ignore[union-attr]
    no_keys = np.zeros(len(COINS), np.int64)
    chosen = np.isin(
        layout.find_groups(layout.hashes(COINS, no_keys), no_keys), np.flatnonzero(GROUPS[group](plan.groups))
    )
    coins = COINS[chosen][:COUNT]
    assert len(coins) > COUNT / 2
    noisy: Any = mechanism.with_less_noise(factor)
    contexts = [
        encode_features(spec.features, np.array([person.values])).repeat(len(coins), axis=0) for person in people
    ]
    arms = [policy.decide(context, coins).arms for context in contexts]

    def contribute(person: int, arms_had: Any) -> Any:
        return policy.contribute(contexts[person], coins, Arms(arms_had), np.full(len(coins), people[person].reward))

    def scores(neighbour: int) -> Scores:
        reports = noisy.randomize(contribute(neighbour, arms[neighbour]), SeededNoise(17 + neighbour))
        left, right = (log_likelihood(noisy, contribute(hypothesis, arms[neighbour]), reports) for hypothesis in (0, 1))
        log_odds_of_arms = [CERTAIN * (arms[neighbour] == arms[hypothesis]) for hypothesis in (0, 1)]
        return np.asarray(left - right + log_odds_of_arms[0] - log_odds_of_arms[1])

    return bound_losses(scores(0), scores(1), Pure(EPSILON), EPSILON, 0.0, ALARM)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("group", GROUPS)
def test_coins_symbol_and_arm_together_keep_epsilon(group: str, pair: str) -> None:
    """The best arm is the same for both neighbours here. Planted: half of the noise."""
    spec, policy = scene()
    bounds = make_proof(policy, spec, group, pair)
    assert bounds.is_consistent_with(EPSILON)
    if (group, pair) in SAYS_NOTHING:
        assert bounds.lower_bound < 0.1
        return
    assert bounds.lower_bound > 0.5 * EPSILON, "the attack sees what there is to see"
    assert not make_proof(policy, spec, group, pair, 2.0).is_consistent_with(EPSILON)


def test_planted_coin_arms_that_suit_the_context_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a server whose plan gives a context's best arm to participants with coins that would give it, too."""
    spec, suited = scene(3000)
    group = "the reward of an arm by coins"
    assert make_proof(suited, spec, group, "another context").is_consistent_with(EPSILON)
    monkeypatch.setattr(CoinArms, "choose_arms", lambda _self, _layout, _coins, best: best)
    assert not make_proof(suited, spec, group, "another context").is_consistent_with(EPSILON)


def test_a_visible_best_arm_reveals_the_context() -> None:
    """No promise covers that, and `privateer account` says so. Coins that give an arm hide it."""
    spec, suited = scene(3000)
    assert not make_proof(suited, spec, "the best arm, a cell and a residual", "another context").is_consistent_with(
        EPSILON
    )
    assert make_proof(suited, spec, "a residual under an arm by coins", "another context").is_consistent_with(EPSILON)


# Somebody sees the arms of a person, and the coins of their report: no other choice may have been made by these coins.
#
# Under `local` coins travel with the report. An arm by coins of its own says of a context what the policy says; an arm
# by
# the coins of a report excludes every context for which these coins give another one.


_ID = "http://s/test"
_SDK = Path(__file__).parents[3] / "sdk/js"
_TWO_PAGES = """
import { Client, MemoryLedger } from "SDK/src/node.js";
import { clockAt, serving } from "SDK/test/support/served.js";
import { vectors } from "SDK/test/support/vectors.js";

const publication = Buffer.from(vectors("publications")[0].publication, "hex");
await serving(publication, async (at) => {
  const client = new Client(at.url, { ledger: new MemoryLedger(), clock: clockAt(1_000_000), retryTimeout: 0 });
  at.asks = ASKED_FIRST;
  const one = await client.join("test");
  at.asks = "published";
  const other = await client.join("test");
  // The page that is asked reports; the other one shows an arm, before or after that.
  const [reports, shows] = IS_FIRST ? [one, other] : [other, one];
  if (!IS_FIRST) shows.choose({ x1: 0.9, x2: 0.1 });
  reports.choose({ x1: 0.3, x2: 0.9 });
  const told = reports.choice.slot;
  const outcome = await reports.report(1);
  if (IS_FIRST) shows.choose({ x1: 0.9, x2: 0.1 });
  console.log(JSON.stringify([outcome, told, shows.choice.slot]));
});
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
@pytest.mark.parametrize(
    ("asked_first", "is_first"),
    [("published", "true"), ("nobody", "false")],
    ids=["a page that is still open after the report", "a page of a pause"],
)
def test_two_pages_never_choose_by_the_coins_of_one_report(asked_first: str, is_first: str) -> None:
    """Both had joined before the first of them chose. That coins are the same by chance has a probability of 2^-32."""
    script = _TWO_PAGES.replace("SDK", _SDK.as_uri()).replace("ASKED_FIRST", json.dumps(asked_first))
    script = script.replace("IS_FIRST", is_first)
    run = subprocess.run(
        ["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60, check=True
    )
    outcome, reported_coins, page_coins = json.loads(run.stdout)
    assert outcome == "accepted"
    assert reported_coins != page_coins


def test_an_arm_of_the_final_policy_has_other_coins_than_a_late_report(tmp_path: Path) -> None:
    """A session joins while the round is open, and a second after the horizon; the second chooses first."""
    spec = make_spec({"experiment.conversion_window_seconds": WEEK})
    server = Server(published(spec))
    device = Device(tmp_path, server)
    early = device.start().join("test")
    server.body = published(spec, version=2, drain=draining(spec, 2))
    late = device.start().join("test")
    late.choose(OTHER)
    stored_arm = device.ledger().change_arm(_ID, lambda arm: arm)
    early.choose(CONTEXT)
    reported_choice = device.ledger().choice(_ID)
    early.report(1.0)
    device.clock.time += 1.1 * WEEK
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert int(stored_arm.coins[0]) != int(reported_choice.coins[0])


def test_a_report_after_a_new_horizon_has_other_coins_than_an_arm_of_the_old_one(tmp_path: Path) -> None:
    """A session that takes the experiment for over chooses again after another one has joined the new round."""
    over: dict[str, Any] = OVER
    server = Server(published(make_spec(), **over))
    device = Device(tmp_path, server)
    old = device.start().join("test")
    old.choose(CONTEXT)
    server.moves_on(make_spec(), 2)
    new = device.start().join("test")
    old.choose(OTHER)
    stored_arm = device.ledger().change_arm(_ID, lambda arm: arm)
    new.choose(CONTEXT)
    reported_choice = device.ledger().choice(_ID)
    assert new.report(1.0) is ReportStatus.ACCEPTED
    assert stored_arm.coins.tolist() != reported_choice.coins.tolist()


# Somebody who sees which arm a person got: in the batch, in a release, and over many choices of one session.


ALARM_OF_SEEN = FALSE_ALARM / 60
"""Chance that one attack on a true claim calls it broken."""
FEWER = {"shuffle": 1, "central": 4}
"""The attack on a curator takes longest: its samples are divided by four."""
CASES = {
    (case.model, case.name): tuple(replace(each, count=each.count // FEWER[case.model]) for each in (case, broken))
    for case, broken in zip(visible_arm_cases(200_000), visible_arm_cases(200_000, "hidden"), strict=True)
}
CHOICES = 40


def run_case(case: Case) -> AuditFinding:
    return _run_attack(case, ALARM_OF_SEEN)


@pytest.mark.parametrize("name", CASES)
def test_a_seen_arm_does_not_break_the_promise(name: tuple[str, str]) -> None:
    assert run_case(CASES[name][0]).holds


@pytest.mark.parametrize("name", CASES)
def test_reported_coins_of_a_seen_arm_break_the_promise(name: tuple[str, str]) -> None:
    """Planted: reports as they are where arms are hidden, at a first round and at a learned policy."""
    finding = run_case(CASES[name][1])
    assert not finding.holds
    assert finding.lower_bound is not None
    assert finding.lower_bound > finding.epsilon  # type: ignore[operator]


@pytest.mark.parametrize("place", range(2))
def test_reports_made_as_local_keep_epsilon_beside_seen_arms(place: int) -> None:
    assert run_case(as_local_cases(200_000)[place]).holds
    planted = run_case(as_local_cases(200_000, 2.0)[place])
    assert not planted.holds, "planted: half of the noise"


def test_a_device_takes_reports_made_as_local_only_if_its_application_says_so() -> None:
    spec = shuffle_spec(**{"privacy.arm_visibility": "as-local"})
    with pytest.raises(TermsRefused, match=r"Limits\(arm_visibility='as-local'\)") as refusal:
        Participation(published(spec), "test", Limits())
    assert refusal.value.field == "arm_visibility"
    for arms in ("as-local", "hidden"):
        assert Participation(published(spec), "test", Limits(arm_visibility=arms)).terms.mechanism.local_epsilon == 1.0
    with pytest.raises(TermsRefused):
        Participation(
            published(shuffle_spec(**{"privacy.arm_visibility": "hidden"})), "test", Limits(arm_visibility="as-local")
        )


def test_a_device_refuses_more_than_epsilon_of_reports_made_as_local() -> None:
    """Planted: a server that amplifies them all the same."""
    hidden, as_local = (shuffle_spec(**{"privacy.arm_visibility": arms}) for arms in ("hidden", "as-local"))
    body = published(hidden, shown_spec=as_local)
    with pytest.raises(TermsRefused) as refusal:
        Participation(body, "test", Limits(arm_visibility="hidden"))
    assert refusal.value.field == "local_epsilon"


def test_every_choice_draws_new_coins(tmp_path: Path) -> None:
    """One coin a session lets a hostile policy of many bins single a person out by the arms that are seen.

    The chance that all choices agree although coins are fresh is 3^-39.
    """
    body = published(make_spec())
    answer = notarized(lambda _: httpx.Response(200, content=body))
    with Client("http://test", ledger=Ledger(tmp_path / "ledger.db"), transport=answer) as client:
        session = client.join("test")
        arms = {session.choose({"x1": 0.4, "x2": 0.4}, fresh=True) for _ in range(CHOICES)}
    assert len(arms) > 1


def test_a_device_refuses_a_promise_that_counts_on_hidden_arms() -> None:
    body = published(shuffle_spec(**{"privacy.arm_visibility": "hidden"}))
    with pytest.raises(TermsRefused) as refusal:
        Participation(body, "test", Limits())
    assert refusal.value.field == "arm_visibility"


def test_a_device_refuses_reports_keyed_by_bin_under_a_spec_with_seen_arms() -> None:
    body = published(shuffle_spec(**{"privacy.arm_visibility": "hidden"}), shown_spec=shuffle_spec())
    with pytest.raises(Malformed):
        Participation(body, "test", Limits())


# Somebody sees the arm that a person got in a round that measures the gain, and the person's report.


LOCAL = Privacy.model_validate({"model": "local", "epsilon": 1.0})
HERE_OF_GAIN, ELSEWHERE, SEEN = 0.1, 0.9, 0
PEOPLE = 100_000


def coins_of(context: float, seed: int) -> NDArray[np.uint32]:
    """The coins of choices by which people with a context got the arm that was seen."""
    policy, seen_coins = policy_of_gain(LOCAL), np.zeros(0, np.uint32)
    rng = np.random.default_rng(seed)
    while len(seen_coins) < PEOPLE:
        coins = rng.integers(0, 2**32, 4 * PEOPLE, dtype=np.uint32)
        arms = policy.decide(np.full((len(coins), 1), context), coins).arms
        seen_coins = np.concatenate([seen_coins, coins[arms == SEEN]])
    return seen_coins[:PEOPLE]


def test_a_public_group_beside_the_arm_reveals_the_context() -> None:
    """What the design leaves out: coins of the choice that travel with the report. They prove far more than epsilon."""
    groups = []
    for seed, context in enumerate((HERE_OF_GAIN, ELSEWHERE)):
        policy, coins = policy_of_gain(LOCAL), coins_of(context, seed)
        followed = policy.decide(np.full((PEOPLE, 1), HERE_OF_GAIN), coins).arms == SEEN
        groups.append((followed & (policy.decide(np.full((PEOPLE, 1), ELSEWHERE), coins).arms != SEEN)).astype(int))
    assert realised_epsilon(*groups) > 4 * LOCAL.bound


def test_the_reported_key_does_not_depend_on_coins_of_the_choice() -> None:
    policy, fresh = policy_of_gain(LOCAL), np.random.default_rng(3).integers(0, 2**32, PEOPLE, dtype=np.uint32)
    contexts = np.full((PEOPLE, 1), HERE_OF_GAIN)
    contribution = policy.contribute(contexts, fresh, Arms(np.full(PEOPLE, SEEN)), np.ones(PEOPLE))
    assert contribution.coins is fresh
    # 21 in 23 people who were seen with this arm here followed the policy.
    followed = COMPARED_COINS * 3 / (COMPARED_COINS * 3 + UNIT - 2 * COMPARED_COINS)
    assert abs(float((contribution.keys == 0).mean()) - followed) < 6 * np.sqrt(0.25 / PEOPLE)


@pytest.mark.parametrize("context", [HERE_OF_GAIN, ELSEWHERE])
def test_ratios_of_symbol_probabilities_are_at_most_e_to_the_epsilon(context: float) -> None:
    """Holds for each value of the coins, which is more than the claim: a symbol is a randomized response."""
    mechanism, coins = policy_of_gain(LOCAL).terms.mechanism, np.arange(2000, dtype=np.uint32)
    truths = [mechanism.true_symbols(each, np.array(each.values, np.int64)) for each in _contribute(context, coins)]
    for truth in truths:
        assert ((truth >= 0) & (truth < mechanism.response.symbols)).all()
    assert float(mechanism.response.truth / mechanism.response.other) <= np.exp(LOCAL.bound) * (1 + 1e-12)


def _contribute(context: float, coins: NDArray[np.uint32]) -> list[Any]:
    policy = policy_of_gain(LOCAL)
    return [gain_contributor(policy, context, reward, arm)(coins) for reward in (0.0, 1.0) for arm in range(3)]


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (4.0, False)])
def test_the_audit_proves_no_more_than_the_claim_and_sees_a_quarter_of_the_noise(factor: float, holds: bool) -> None:
    """False alarm: 1e-6 a claim. Of reports; batches and releases by night, as `privateer audit` attacks them."""
    for case in (gain_case for gain_case in gain_cases(10_000, factor) if gain_case.model == LOCAL.model):
        left, right = (case.sample(neighbour, case.count) for neighbour in (0, 1))
        bounds = bound_losses(left, right, case.event, case.epsilon, case.delta, FALSE_ALARM_OF_GAIN)
        assert bounds.is_consistent_with(case.epsilon) is holds, case.name
