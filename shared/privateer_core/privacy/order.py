"""Says where more trust tells less: where a cap decides, and where reports that stand alone would tell more."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from privateer_core.accounting.accountant import account
from privateer_core.primitives.public_coins import UNIT, Layout
from privateer_core.privacy.cell_reports import concerns_of_features
from privateer_core.privacy.information import AskedCell, information
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.trust import LOCAL_EPSILON_MOST, TIGHT, hidden_in_batches, stands_alone
from privateer_core.spec.privacy import Privacy
from privateer_core.spec.spec import Spec

_NARROWER: Final = 0.9
"""A larger cap is worth a word if it makes intervals so much narrower."""
_WIDER: Final = 1.01
"""Intervals that are less wider are as wide: noise is calibrated in steps."""
_STEP: Final = 0.002
"""Local epsilons are found to a thousandth."""
_DEVICES: Final = "devices take part only once their application sets Limits(local_epsilon={cap:g})"
_MORE: Final = 2.0
"""A larger cap is larger by so much."""


def concerns_of(spec: Spec) -> list[str]:
    """Say what is allowed but is probably not meant: the spec's own, where more trust tells less, too many features."""
    return [*spec.concerns(), *_of_order(spec), *concerns_of_features(spec)]


def told(spec: Spec, privacy: Privacy, people: int, arm: float | None = None) -> float:
    """Return what one person of a round tells of one cell under a promise, per `information.information`.

    spec: the experiment.
    privacy: what its people would be promised.
    people: people of the round.
    arm: share of the arm that is looked at; None: of arms alike.
    """
    return _told(*_under(spec, privacy, people, arm), people, arm)


def _under(spec: Spec, privacy: Privacy, people: int, arm: float | None = None) -> tuple[Spec, Terms]:
    """Return the experiment with another promise, and a round's terms; arms that are batches have the share ``arm``."""
    under = spec.model_copy(update={"privacy": privacy})
    question: Any = under.usual_question()
    if arm is not None and under.groups_arms:
        question = replace(question, layout=Layout(question.layout.seed, np.array([[round(arm * UNIT)]], np.uint32)))
    return under, calibrate(privacy, people, question, under.fewest(people), under.reports)


def _told(under: Spec, terms: Terms, people: int, arm: float | None = None) -> float:
    alike = 1 / (len(under.options) - len(under.retired)) if under.capabilities.reports_one_option else 1.0
    looked_at = alike if arm is None or not under.capabilities.reports_one_option else arm
    asked = AskedCell(under.usual_question(), people, arm=looked_at, in_turns=under.takes_turns)
    return under.telling * information(terms.mechanism, asked)


def alone(privacy: Privacy) -> Privacy:
    """Return the same epsilon where every report is private by itself."""
    return Privacy(model=stands_alone().name, epsilon=privacy.epsilon)


def _of_order(spec: Spec) -> Iterator[str]:
    privacy, row = spec.privacy, spec.privacy.trust
    mixed = row.batched and row.calibration == TIGHT and not hidden_in_batches(privacy, spec.question)
    if not mixed or privacy.as_alone:
        return
    rounds = {people: _under(spec, privacy, people) for people in spec.extreme_batches}
    if rounds:
        yield from _where_the_cap_decides(rounds)
        yield from _where_alone_tells_more(spec, {people: _told(*one, people) for people, one in rounds.items()})


def _where_the_cap_decides(rounds: dict[int, tuple[Spec, Terms]]) -> Iterator[str]:
    """Speak of the largest round, where the cap costs most."""
    people = max(rounds)
    spec, terms = rounds[people]
    privacy = spec.privacy
    cap, more = privacy.local_epsilon_max, min(LOCAL_EPSILON_MOST, privacy.local_epsilon_max + _MORE)
    if terms.mechanism.local_epsilon < cap - _STEP or more <= cap or terms.reports > 1 or terms.event is None:
        return
    raised = told(spec, privacy.model_copy(update={"local_epsilon_max": more}), people)
    width = math.sqrt(_told(spec, terms, people) / raised)
    if width <= _NARROWER:
        least = account(terms.event).epsilon(privacy.delta)
        yield (
            f"reports have more noise than epsilon {privacy.bound:g} asks for. privacy.local_epsilon_max = {cap:g} "
            "limits what a report tells by itself, to somebody who sees it outside of its batch, and in a round of "
            f"{people:,} people that limit is the stricter one: the batch keeps epsilon {least:.2g}. With "
            f"privacy.local_epsilon_max = {more:g} intervals are {1 - width:.0%} narrower. That costs protection where "
            f"shuffler and server work together: they learn of a person what epsilon {more:g} allows, in place of "
            f"{cap:g}. And {_DEVICES.format(cap=more)}"
        )


def _where_alone_tells_more(spec: Spec, rounds: dict[int, float]) -> Iterator[str]:
    privacy, row = spec.privacy, stands_alone()
    wider = {people: math.sqrt(told(spec, alone(privacy), people) / one) for people, one in rounds.items()}
    worse = {people: width for people, width in wider.items() if width > _WIDER}
    if not worse:
        return
    where = " and ".join(f"{width:.2f} times as wide in a round of {people:,}" for people, width in worse.items())
    cause = "reports hide the arm, too" if privacy.arm_in_key else "batches are small, or privacy.local_epsilon_max is"
    yield (
        f"shuffling does not pay here: model '{row.name}' has narrower intervals at the same epsilon, and needs no "
        f"shuffler. With model '{privacy.model}' they are {where}, because {cause}. {_remedy(spec, max(worse))}"
    )


def _remedy(spec: Spec, people: int) -> str:
    """Return what restores the order in a round: a larger cap, else another promise."""
    privacy, least = spec.privacy, told(spec, alone(spec.privacy), people) / _WIDER**2
    caps = [float(cap) for cap in range(math.floor(privacy.local_epsilon_max) + 1, int(LOCAL_EPSILON_MOST) + 1)]
    changes: list[dict[str, Any]] = [{"local_epsilon_max": cap} for cap in caps]
    for change in changes:
        if told(spec, privacy.model_copy(update=change), people) >= least:
            cap = change["local_epsilon_max"]
            return f"Raise privacy.local_epsilon_max to {cap:g}; {_DEVICES.format(cap=cap)}"
    if spec.capabilities.context_decides:
        return (
            "Have larger rounds, or set privacy.arms = 'as-local', which keeps against whoever sees arms what that "
            "model does"
        )
    return f"Have larger rounds, or set privacy.model = '{stands_alone().name}'"
