"""More trust never tells less: the learner gains no less from more trust, more epsilon or more participants.

In closed form: what one report tells of a cell (`privateer_core.privacy.information`), for every algorithm. It has no
chance in it. `tests/simulation/test_linear.py` compares regrets.
"""

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise, product

import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.mechanisms import MECHANISMS
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.questions import KeyedHits, KeyedMeans, L2VectorSum, SmallDomainMeans, VectorSum
from privateer_core.privacy import order
from privateer_core.privacy.information import AskedCell, measure_information
from privateer_core.privacy.order import list_concerns, participant_information
from privateer_core.privacy.terms import calibrate
from privateer_core.privacy.trust import TRUST, Crowd
from privateer_core.spec.privacy import Privacy

MODELS = ("none", "central", "split", "shuffle", "local")
"""From most trust on."""
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
PEOPLE = (10**3, 10**4, 10**5, 10**6)
SHARES = (None, 0.9, 0.1)
"""Of the arm that is looked at; None: of arms alike."""
SLACK = 1e-9
UNLIKE = 0.1
"""The best alphabet is chosen for arms alike: of others it may be so far from the best."""
OURS = tuple(name for name in ALGORITHMS if algorithm(name).spec.__module__.startswith("privateer_core."))
ARM_IN_THE_KEY = frozenset({"bandit", "convex", "trial"})
"""Where people of every arm are in one batch, so that an arm of few is told by few: seen arms cost more than a batch
gives at large epsilons. A warning says so."""
TOGETHER = {("linear", 0.5, 10**3, 0.1)}
"""Rounds of a curator ask about all arms, also those of few people, where shuffled rounds favour one."""
NORMAL = 8.0
"""A curator's normal noise is more than Laplace noise there, and in small rounds more than that of reports."""
KEYS = 4
QUESTIONS = {
    "means": KeyedMeans(Layout.ungrouped(KEYS, 1), 1.0, 1 / KEYS),
    "counted means": KeyedMeans(Layout.ungrouped(KEYS, 1), 1.0, 1 / KEYS, has_counts=True),
    "rare": KeyedMeans(Layout.ungrouped(KEYS, 1), 1.0, 1 / KEYS, rate=0.01, has_counts=True),
    "few means": SmallDomainMeans(Layout.ungrouped(KEYS, 1), 1.0, 1 / KEYS),
    "hits": KeyedHits(SlotLayout.ungrouped(KEYS, 1)),
    "numbers": KeyedHits(SlotLayout.ungrouped(KEYS, 1), 0.5),
    "vectors": L2VectorSum(Ball("l2", 1.0, 6)),
    "a box": VectorSum(Ball("max", 1.0, 4)),
}


def promise(model, epsilon, **limits):
    row = TRUST[model]
    fields = {"model": model} | ({"epsilon": epsilon} if row.promises else {})
    return Privacy(**fields, **({"delta": 1e-6} if row.delta_least else {}), **limits)


def spec_of(name, people):
    """An experiment of the algorithm with rounds of so many people."""
    spec = next(spec for spec in algorithm(name).spec.instances().values() if spec.privacy.trust.crowd is Crowd.BATCH)
    if "round_size" not in type(spec.experiment).model_fields:
        return spec
    table = spec.experiment.model_copy(update={"horizon": 4 * people, "round_size": people})
    return spec.model_copy(update={"experiment": table})


@cache
def value(name, model, epsilon, people, arm):
    return participant_information(spec_of(name, people), promise(model, epsilon), people, arm)


def served(question):
    """Return the models that have a mechanism for a kind of question."""
    return tuple(model for model in MODELS if question in TRUST[model].serves)


def slack(arm):
    return SLACK if arm is None else UNLIKE


def find_violations(name, models=MODELS, measure=value):
    """Return (epsilon, people, arm) where a model of more trust tells less than the next one."""
    violations, models = [], [model for model in models if model in served(algorithm(name).spec.question)]
    for epsilon, people, arm in product(EPSILONS, PEOPLE, SHARES):
        values = [measure(name, model, epsilon, people, arm) for model in models]
        if any(upper < lower * (1 - slack(arm)) for upper, lower in pairwise(values)):
            violations.append((epsilon, people, arm))
    return violations


@pytest.mark.parametrize("name", OURS)
def test_a_model_of_more_trust_gives_the_learner_no_less_information(name):
    violations = set(find_violations(name)) - {place[1:] for place in TOGETHER if place[0] == name}
    if name not in ARM_IN_THE_KEY:
        assert not violations
        return
    assert violations, "there is no violation any more: remove the name"
    assert not find_violations(name, ("none", "central", "split", "shuffle"))
    assert {place[0] for place in find_violations(name, ("central", "local"))} <= {NORMAL}


@pytest.mark.parametrize("name", sorted(ARM_IN_THE_KEY))
def test_a_warning_is_given_where_visible_arms_cost_more_than_a_batch_gains(name):
    spec = spec_of(name, 1000)
    close = spec.model_copy(update={"privacy": promise("shuffle", 4.0, local_epsilon_max=4.0)})
    (note,) = [note for note in list_concerns(close) if note.startswith("shuffling does not pay here: model 'local'")]
    assert "times as wide in a round of" in note
    assert "local_epsilon_max" in note or "larger rounds" in note


@pytest.mark.parametrize("name", OURS)
def test_more_epsilon_or_participants_give_the_learner_no_less_information(name):
    for model, arm in product(served(algorithm(name).spec.question), SHARES):
        values = {
            (epsilon, people): value(name, model, epsilon, people, arm) for epsilon, people in product(EPSILONS, PEOPLE)
        }
        for (epsilon, people), lower in values.items():
            for larger in ((2 * epsilon, people), (epsilon, 10 * people)):
                upper = values.get(larger, math.inf)
                assert upper >= lower * (1 - slack(arm)), (model, arm, epsilon, people, larger)


@pytest.mark.parametrize("kind", QUESTIONS)
def test_every_kind_of_question_gives_more_information_under_more_trust(kind):
    question = QUESTIONS[kind]
    for epsilon, people, key in product(EPSILONS, PEOPLE, (1 / KEYS, 0.9, 0.1)):
        values = []
        for model in served(type(question)):
            terms = calibrate(promise(model, epsilon), people, question)
            values.append(measure_information(terms.mechanism, AskedCell(question, people, key=key)))
        assert all(upper >= lower * (1 - SLACK) for upper, lower in pairwise(values)), (epsilon, people, key, values)


@pytest.mark.parametrize("name", ["bandit", "convex"])
def test_arms_that_are_batches_of_their_own_give_no_less_information_than_local_reports(name):
    """Against who sees arms, too, and of an arm of a tenth of the people."""
    for epsilon, people, arm in product(EPSILONS, PEOPLE, SHARES):
        grouped = participant_information(
            spec_of(name, people), promise("shuffle", epsilon, arm_visibility="grouped"), people, arm
        )
        assert grouped >= value(name, "local", epsilon, people, arm) * (1 - SLACK)


def test_planted_a_cap_below_the_promise_of_an_arm_in_the_key_breaks_the_order():
    """Everything at the old cap: local epsilon 4 at any epsilon tells less than reports of 8 that stand alone."""
    people = 10_000
    spec = spec_of("partition", people)
    capped = promise("shuffle", 4.0).model_copy(update={"epsilon": 8.0, "local_epsilon_max": 4.0})
    assert participant_information(spec, capped, people) < 0.99 * participant_information(
        spec, promise("local", 8.0), people
    )
    assert participant_information(spec, promise("shuffle", 8.0), people) >= participant_information(
        spec, promise("local", 8.0), people
    )


def test_planted_arms_that_share_rounds_break_the_order(monkeypatch):
    """Were arms not to take turns, context-bound arms would be told by their shares' squares, as in first rounds."""
    monkeypatch.setattr(order, "AskedCell", lambda *args, **kwargs: AskedCell(*args, **kwargs | {"in_turns": False}))
    assert {(4.0, people, 0.1) for people in PEOPLE} <= set(find_violations("partition", measure=value.__wrapped__))


def test_as_local_arms_give_as_much_information_as_local_reports():
    for name in (name for name in OURS if algorithm(name).spec.capabilities.context_decides):
        for epsilon, people in product(EPSILONS, PEOPLE):
            spec, local_privacy = spec_of(name, people), promise("local", epsilon)
            as_local_privacy = promise("shuffle", epsilon, arm_visibility="as-local")
            assert math.isclose(
                participant_information(spec, as_local_privacy, people),
                participant_information(spec, local_privacy, people),
                rel_tol=SLACK,
            )


def test_every_mechanism_has_a_registered_measure_of_information():
    bases = set(measure_information.registry) - {object}
    assert all(any(issubclass(kind, base) for base in bases) for kind in MECHANISMS)


def test_a_mechanism_without_a_measure_of_information_is_refused():
    class Unknown:
        pass

    with pytest.raises(TypeError, match="Unknown"):
        measure_information(Unknown(), AskedCell(QUESTIONS["means"], 1000))


def test_a_binding_cap_is_a_concern_that_names_a_better_cap():
    spec = spec_of("trial", 100_000)
    spec = spec.model_copy(update={"privacy": promise("shuffle", 1.0, local_epsilon_max=4.0)})
    (note,) = [note for note in list_concerns(spec) if "privacy.local_epsilon_max = 4 limits" in note]
    assert "With privacy.local_epsilon_max = 6 intervals are" in note
    assert note.endswith("Limits(local_epsilon=6)")
    raised = spec.model_copy(update={"privacy": promise("shuffle", 1.0, local_epsilon_max=16.0)})
    assert not [note for note in list_concerns(raised) if "limits what" in note]


def test_keys_of_few_participants_give_less_information():
    mechanism = calibrate(promise("local", 1.0), 1000, QUESTIONS["means"]).mechanism
    asked_cell = AskedCell(QUESTIONS["means"], 1000, key=0.4)
    assert measure_information(mechanism, replace(asked_cell, key=0.1)) < measure_information(mechanism, asked_cell)
