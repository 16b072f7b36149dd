"""Runs the attacks and collects what they find.

Parts are attacked by themselves, too: each draw that hides something has its own claim and its own law.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final, Literal

import msgspec
import numpy as np

from privateer_client.participation import Participation
from privateer_core.plugins import Plugins
from privateer_core.privacy.trust import TRUST
from privateer_lab.audit.case import ANY, CHANNELS, Case, Integers, MechanismPart, Noise
from privateer_lab.audit.channels import channels
from privateer_lab.audit.finding import FORMAT, AuditFinding
from privateer_lab.audit.gain_rounds import gain_cases
from privateer_lab.audit.law import Law, UniformLaw
from privateer_lab.audit.lower_bounds import attack
from privateer_lab.audit.mechanisms.bounded_vectors import vector_cases, vector_parts
from privateer_lab.audit.mechanisms.events import event_cases, event_parts
from privateer_lab.audit.mechanisms.groups import group_cases, group_parts
from privateer_lab.audit.mechanisms.hits import hit_cases, hit_parts
from privateer_lab.audit.mechanisms.keyed import keyed_cases, keyed_parts
from privateer_lab.audit.mechanisms.moments import moment_cases, moment_parts
from privateer_lab.audit.mechanisms.running_sums import running_cases, running_parts
from privateer_lab.audit.sealed_reports import ALONE, LIMITS, opened, wire_cases
from privateer_lab.audit.whole_experiments import claiming_algorithms, experiment_cases
from privateer_shuffler.shuffle import Groups, RandomBelow, RandomPlaces

PARTS: Final = Plugins[Callable[[], list[MechanismPart]]](
    "privateer.parts", "distribution that brings it", "--mechanism"
)
"""What returns the parts of other mechanisms than the core's, by a name of theirs."""
HIDES_NOTHING: Final = frozenset({"bernoulli", "rounded", "Ball.on_grid", "BitVectors._integers"})
"""What mechanisms draw beside their parts: rounding, on which accuracy alone depends."""
_COINS, _RESTARTS, _BATCHES = 6_000, 400, 4_000
_PLACES: Final = 16
_NEIGHBOURS: Final = ((0.1, 1.0), (0.9, 0.0))
"""Contexts and rewards of two people: coins and places must have the same law for both."""
FALSE_ALARM: Final = 1e-4
"""Chance that an audit of true claims reports any of them as broken."""
ATTACKS: Final = Plugins[Callable[[int], list[Case]]]("privateer.attacks", "distribution that brings it", "--mechanism")
"""What returns attacks with about so many observations of each neighbour, by the name of what is attacked."""


def parts() -> list[MechanismPart]:
    """Return all parts."""
    keyed = [*keyed_parts(), *event_parts(), *group_parts(), *hit_parts()]
    own = [*keyed, *vector_parts(), *running_parts(), *moment_parts()]
    return [*own, *device_parts(), *(part for made in PARTS.values() for part in made())]


def device_parts() -> list[MechanismPart]:
    """Return the parts that belong to no mechanism; of each its law alone is claimed."""
    bytes_of_coins: tuple[Law, ...] = (UniformLaw(256),) * 4
    places: tuple[Law, ...] = (UniformLaw(_PLACES),) * 1
    return [
        _part("coins of a device", _coins, bytes_of_coins, _COINS),
        _part("coins of a device that starts again", _restarted, bytes_of_coins * 2, _RESTARTS),
        _part("places of a batch", _places, places, _BATCHES),
        _part("places of one kind in a batch of kinds", _places_of_a_kind, places, _BATCHES),
    ]


def _part(name: str, observe: Callable[[int, int], Integers], laws: tuple[Law, ...], count: int) -> MechanismPart:
    noise = Noise(laws, tuple(range(len(laws))), np.zeros((2, len(laws)), np.int64))
    return MechanismPart(name, CHANNELS, ANY, ANY, "", None, 0.0, observe, noise.score, noise.surprise, count)


def _device() -> Participation:
    return Participation(opened(ALONE)[0].publication, "audit", LIMITS)


def _bytes(coins: Any) -> Integers:
    return np.ascontiguousarray(coins).astype("<u4").view(np.uint8).reshape(len(coins), -1).astype(np.int64)


def _coins(who: int, count: int) -> Integers:
    """Return coins as a device has drawn them when it has seen its context and its reward."""
    device, (context, reward) = _device(), _NEIGHBOURS[who]
    contexts, coins = np.full((count, 1), context), device.coins(count)
    made = device.policy.contribute(contexts, coins, device.decide(contexts, coins), np.full(count, reward))
    return _bytes(made.coins)


def _restarted(who: int, count: int) -> Integers:
    """Return the first coins of a device, and those after it starts again: neither say anything of the other."""
    del who
    return _bytes(np.array([[int(_device().coins(1)[0]) for _ in range(2)] for _ in range(count)]))


def _places(who: int, count: int) -> Integers:
    """Return the place of the first person to arrive, or of the last."""
    batches = (RandomPlaces(range(_PLACES), RandomBelow()) for _ in range(count))
    return np.array([[places.draw() for _ in range(_PLACES)][-who] for places in batches])[:, None]


def _places_of_a_kind(who: int, count: int) -> Integers:
    """Return the place of the first person's message of a kind, or the last person's, among those of that kind."""
    drawn = [Groups(range(2 * _PLACES), _PLACES, 1, 2, RandomBelow()).draw(_PLACES) for _ in range(count)]
    return np.array([order[1 if who == 0 else -1] - _PLACES for order in drawn])[:, None]


def cases(samples: int, chosen: set[str] | None = None) -> list[Case]:
    """Return all attacks, with about ``samples`` observations of each neighbour where these are cheap.

    ``chosen`` are the algorithms whose experiments are played to be attacked; None: all.
    """
    return [*_quick_cases(samples), *experiment_cases(samples, chosen)]


def _quick_cases(samples: int) -> list[Case]:
    """Return the attacks that play no experiment to be made."""
    return [
        *wire_cases(samples),
        *keyed_cases(samples),
        *event_cases(samples),
        *group_cases(samples),
        *hit_cases(samples),
        *gain_cases(samples),
        *vector_cases(samples),
        *running_cases(samples),
        *moment_cases(samples),
        *attacks_of_algorithms(samples),
    ]


def mechanisms() -> set[str]:
    """Return the names of what can be attacked: mechanisms, algorithms and channels."""
    made: list[Case | MechanismPart] = [*_quick_cases(1000), *parts()]
    return {one.mechanism for one in made if one.model != ANY} | claiming_algorithms() | {CHANNELS}


def attacked() -> set[tuple[str, str, str]]:
    """Return mechanism or algorithm, trust model and calibration of every claim that is attacked."""
    attacks: list[Case | MechanismPart] = [*cases(1000), *parts()]
    return {(one.mechanism, one.model, one.calibration) for one in attacks if one.model != ANY}


def audit(
    samples: int, chosen: set[str], *, model: str | None = None, calibration: str | None = None
) -> tuple[int, Iterator[AuditFinding]]:
    """Return the number of attacks, and their findings one by one.

    chosen: names out of `mechanisms`.
    model, calibration: attack claims under this trust model and calibration alone, where given.
    """

    def wanted(one: Case | MechanismPart) -> bool:
        same = model in (None, one.model) and calibration in (None, one.calibration)
        return one.mechanism in chosen and (same or one.model == ANY)

    attacks, pieces = list(filter(wanted, cases(samples, chosen))), list(filter(wanted, parts()))
    checks = {name: check for name, check in channels().items() if is_about(name, model)} if CHANNELS in chosen else {}
    # A part has a bound and a law.
    alarm = FALSE_ALARM / max(1, len(attacks) + 2 * len(pieces))

    def findings() -> Iterator[AuditFinding]:
        for name, check in checks.items():
            yield _checked(name, check)
        for part in pieces:
            yield _examined(part, alarm)
        for case in attacks:
            yield _attacked(case, alarm)

    return len(checks) + len(pieces) + len(attacks), findings()


def is_about(channel: str, model: str | None) -> bool:
    """Whether the check of a channel is about a trust model: its name may end with that of another one."""
    named = channel.rpartition(", ")[2]
    return model is None or named not in TRUST or named == model


def _attacked(case: Case, alarm: float) -> AuditFinding:
    left, right = (case.sample(who, case.count) for who in (0, 1))
    found = attack(left, right, case.event, case.epsilon, case.delta, alarm)
    return AuditFinding(
        attack=case.name,
        mechanism=case.mechanism,
        model=case.model,
        calibration=case.calibration,
        epsilon=case.epsilon,
        delta=case.delta,
        lower_bound=found.lower_bound,
        confidence=1 - FALSE_ALARM,
        samples=case.count,
        verdict="holds" if found.stands(case.epsilon) else "broken",
        unsafe=case.unsafe,
    )


def _examined(part: MechanismPart, alarm: float) -> AuditFinding:
    found = part.examine(alarm)
    return AuditFinding(
        attack=f"part: {part.name}",
        mechanism=part.mechanism,
        model=part.model,
        calibration=part.calibration,
        epsilon=part.epsilon,
        delta=None if part.event is None else part.delta,
        lower_bound=found.evidence.lower_bound if found.evidence else None,
        confidence=1 - FALSE_ALARM,
        samples=part.count,
        verdict="holds" if found.holds else "broken",
        law=found.law,
    )


def _checked(name: str, check: Callable[[], bool]) -> AuditFinding:
    verdict: Literal["holds", "broken"] = "holds" if check() else "broken"
    return AuditFinding(name, CHANNELS, ANY, ANY, None, None, None, None, 1, verdict)


def summary(findings: list[AuditFinding]) -> dict[str, Any]:
    """Return figures over findings, and what found them and when; what is known to be unsafe counts apart."""
    wrong = [finding for finding in findings if not finding.holds]
    broken, known = (sorted({one.mechanism for one in wrong if one.unsafe is unsafe}) for unsafe in (False, True))
    return {
        "format": FORMAT,
        "privateer": version("privateer-lab"),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "holds": not broken,
        "broken": broken,
        "unsafe": known,
        "attacks": len(findings),
        "false_alarm": FALSE_ALARM,
        "findings": [msgspec.structs.asdict(finding) for finding in findings],
    }


def attacks_of_algorithms(samples: int) -> list[Case]:
    """Return the attacks that installed distributions bring."""
    return [case for attacks in ATTACKS.values() for case in attacks(samples)]
