"""The audit: all attacks, and their findings.

Parts of mechanisms are attacked separately, too: each draw that protects data has its own claim and its own law.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final

import msgspec
import numpy as np

from privateer_client.participation import Participation
from privateer_core.plugins import Plugins
from privateer_core.privacy.trust import TRUST
from privateer_lab.audit.case import ANY, CHANNELS, FORMAT, AuditFinding, Case, Integers, MechanismPart, Noise
from privateer_lab.audit.channels import channel_checks
from privateer_lab.audit.law import Law, LowerBounds, UniformLaw, bound_losses
from privateer_lab.audit.mechanisms import bounded_vectors, features, hits, keyed, moments, rows, running_sums, votes
from privateer_lab.audit.past_reports import past_cases
from privateer_lab.audit.sealed_reports import (
    SINGLE_REPORT_MODEL,
    batch_cases,
    open_audit_round,
    path_cases,
    wire_cases,
)
from privateer_lab.audit.sent_coins import coin_parts
from privateer_lab.audit.whole_experiments import claiming_algorithms, experiment_cases, gain_cases
from privateer_shuffler.shuffle import Groups, RandomBelow, ShuffledPlaces

_ORIGIN: Final = "distribution that brings it"
PARTS: Final = Plugins[Callable[[], list[MechanismPart]]]("privateer.parts", _ORIGIN, "--mechanism")
"""Functions that return the parts of mechanisms outside the core, by name."""
ROUNDING: Final = frozenset(
    {"draw_signs", "round_stochastically", "Ball.round_to_grid", "round_to_integers", "round_shares_stochastically"}
)
"""Samplers that mechanisms use for rounding alone, on which no privacy depends."""
_N_COINS, _N_RESTARTS, _N_BATCHES = 6_000, 400, 4_000
_N_PLACES: Final = 16
_NEIGHBOURS: Final = ((0.1, 1.0), (0.9, 0.0))
"""Contexts and rewards of two participants: coins and places must have the same law for both."""
FALSE_ALARM: Final = 1e-4
"""Probability that an audit of true claims reports a broken claim."""
ATTACKS: Final = Plugins[Callable[[int], list[Case]]]("privateer.attacks", _ORIGIN, "--mechanism")
"""Functions from a number of observations to attacks, by the name of the attacked algorithm or mechanism."""


def all_parts() -> list[MechanismPart]:
    """Return the parts of all mechanisms and devices."""
    makers = (
        *(keyed.keyed_parts, hits.event_parts, hits.group_parts, hits.hit_parts),
        *(bounded_vectors.vector_parts, features.feature_parts, rows.row_parts),
        *(running_sums.running_parts, moments.moment_parts, votes.vote_parts),
        *(device_parts, *PARTS.values()),
    )
    return [part for make_parts in makers for part in make_parts()]


def device_parts() -> list[MechanismPart]:
    """Return the parts that belong to no mechanism, of which only the law is claimed."""
    coin_byte_laws: tuple[Law, ...] = (UniformLaw(256),) * 4
    place_laws: tuple[Law, ...] = (UniformLaw(_N_PLACES),)
    return [
        _law_part("coins of a device", _observe_coins, coin_byte_laws, _N_COINS),
        _law_part("coins of a device that starts again", _observe_restarted_coins, coin_byte_laws * 2, _N_RESTARTS),
        _law_part("places of a batch", _observe_places, place_laws, _N_BATCHES),
        _law_part("places of one kind in a batch of kinds", _observe_places_of_kind, place_laws, _N_BATCHES),
    ]


def _law_part(name: str, observe: Callable[[int, int], Integers], laws: tuple[Law, ...], count: int) -> MechanismPart:
    noise = Noise(laws, tuple(range(len(laws))), np.zeros((2, len(laws)), np.int64))
    return MechanismPart(name, CHANNELS, ANY, ANY, "", None, 0.0, observe, noise.score, noise.p_value, count)


def _join_device() -> Participation:
    return open_audit_round(SINGLE_REPORT_MODEL).join()


def _split_coin_bytes(coins: Any) -> Integers:
    return np.ascontiguousarray(coins).astype("<u4").view(np.uint8).reshape(len(coins), -1).astype(np.int64)


def _observe_coins(neighbour: int, count: int) -> Integers:
    """Draw coins on a device that knows its context and its reward."""
    device, (context, reward) = _join_device(), _NEIGHBOURS[neighbour]
    contexts, coins = np.full((count, 1), context), device.draw_coins(count)
    contribution = device.policy.contribute(contexts, coins, device.decide(contexts, coins), np.full(count, reward))
    return _split_coin_bytes(contribution.coins)


def _observe_restarted_coins(neighbour: int, count: int) -> Integers:
    """Draw the first coins of a device before and after a restart."""
    del neighbour
    return _split_coin_bytes(np.array([[int(_join_device().draw_coins(1)[0]) for _ in range(2)] for _ in range(count)]))


def _observe_places(neighbour: int, count: int) -> Integers:
    """Draw the place of the first participant of a batch (neighbour 0), or of the last."""
    batches = (ShuffledPlaces(range(_N_PLACES), RandomBelow()) for _ in range(count))
    return np.array([[places.draw() for _ in range(_N_PLACES)][-neighbour] for places in batches])[:, None]


def _observe_places_of_kind(neighbour: int, count: int) -> Integers:
    """Draw the place of the first (neighbour 0) or last participant's message among the messages of its kind."""
    orders = [Groups(range(2 * _N_PLACES), _N_PLACES, 1, 2, RandomBelow()).draw(_N_PLACES) for _ in range(count)]
    return np.array([order[1 if neighbour == 0 else -1] - _N_PLACES for order in orders])[:, None]


def build_cases(samples: int, algorithms: set[str] | None = None) -> list[Case]:
    """Build all attacks, or those on ``algorithms``, with about ``samples`` observations where these are cheap."""
    makers = (experiment_cases, path_cases, batch_cases, past_cases)
    return [*_quick_cases(samples), *(case for make_cases in makers for case in make_cases(samples, algorithms))]


def _quick_cases(samples: int) -> list[Case]:
    """Build the attacks that need no simulated experiment."""
    makers = (
        *(wire_cases, keyed.keyed_cases, hits.event_cases, hits.visible_group_cases, hits.hit_cases, gain_cases),
        *(bounded_vectors.vector_cases, features.feature_cases, rows.row_cases),
        *(running_sums.running_cases, moments.moment_cases, votes.vote_cases),
        *ATTACKS.values(),
    )
    return [case for make_cases in makers for case in make_cases(samples)]


def target_names() -> set[str]:
    """Return the names of all targets: mechanisms, algorithms and channels."""
    attacks: list[Case | MechanismPart] = [*_quick_cases(1000), *all_parts()]
    return {case.mechanism for case in attacks if case.model != ANY} | claiming_algorithms() | {CHANNELS}


def attacked_claims() -> set[tuple[str, str, str]]:
    """Return the (mechanism or algorithm, trust model, calibration) of every attacked claim."""
    attacks: list[Case | MechanismPart] = [*build_cases(1000), *all_parts()]
    return {(case.mechanism, case.model, case.calibration) for case in attacks if case.model != ANY}


def run_audit(
    samples: int, targets: set[str], *, model: str | None = None, calibration: str | None = None
) -> tuple[int, Iterator[AuditFinding]]:
    """Return the number of attacks on ``targets``, under one model and calibration if given, and their findings."""

    def is_selected(case: Case | MechanismPart) -> bool:
        is_model_attacked = model in (None, case.model) and calibration in (None, case.calibration)
        return case.mechanism in targets and (is_model_attacked or case.model == ANY)

    attacks = list(filter(is_selected, build_cases(samples, targets)))
    selected_parts = list(filter(is_selected, [*all_parts(), *coin_parts(samples, targets)]))
    all_checks = channel_checks() if CHANNELS in targets else {}
    checks = {name: check for name, check in all_checks.items() if is_about(name, model)}
    # A part has a bound and a law.
    false_alarm_rate = FALSE_ALARM / max(1, len(attacks) + 2 * len(selected_parts))

    def findings() -> Iterator[AuditFinding]:
        for name, check in checks.items():
            yield AuditFinding(name, CHANNELS, ANY, ANY, None, None, None, None, 1, "holds" if check() else "broken")
        for part in selected_parts:
            yield _examine_part(part, false_alarm_rate)
        for case in attacks:
            yield _run_attack(case, false_alarm_rate)

    return len(checks) + len(selected_parts) + len(attacks), findings()


def is_about(channel: str, model: str | None) -> bool:
    """Whether the check of a channel applies to a trust model; its name may end with another model's name."""
    named_model = channel.rpartition(", ")[2]
    return model is None or named_model not in TRUST or named_model == model


def _run_attack(case: Case, false_alarm_rate: float) -> AuditFinding:
    """Sample both neighbours, attack the samples, and judge the lower bound against the claim."""
    left, right = (case.sample(neighbour, case.count) for neighbour in (0, 1))
    bounds = bound_losses(left, right, case.event, case.epsilon, case.delta, false_alarm_rate)
    is_satisfied = bounds.is_consistent_with(case.epsilon)
    return _build_finding(case, case.name, bounds, is_satisfied=is_satisfied, unsafe=case.unsafe)


def _examine_part(part: MechanismPart, false_alarm_rate: float) -> AuditFinding:
    outcome = part.examine(false_alarm_rate)
    name, is_satisfied = f"part: {part.name}", outcome.is_satisfied
    return _build_finding(part, name, outcome.bounds, is_satisfied=is_satisfied, law=outcome.p_value)


def _build_finding(
    case: Case | MechanismPart, name: str, bounds: LowerBounds | None, *, is_satisfied: bool, **details: Any
) -> AuditFinding:
    """Build the finding of an attack or of a test of a sampler, with the claim it is about."""
    return AuditFinding(
        attack=name,
        mechanism=case.mechanism,
        model=case.model,
        calibration=case.calibration,
        epsilon=case.epsilon,
        delta=None if case.event is None else case.delta,
        lower_bound=bounds.lower_bound if bounds else None,
        confidence=1 - FALSE_ALARM,
        samples=case.count,
        verdict="holds" if is_satisfied else "broken",
        **details,
    )


def summarize_findings(findings: list[AuditFinding]) -> dict[str, Any]:
    """Summarize findings, with version and time; broken claims that are known to be unsafe are listed separately."""
    failures = {(finding.mechanism, finding.unsafe) for finding in findings if not finding.holds}
    broken, exempt = (sorted(name for name, unsafe in failures if unsafe is expected) for expected in (False, True))
    return {
        "format": FORMAT,
        "privateer": version("privateer-lab"),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "holds": not broken,
        "broken": broken,
        "unsafe": exempt,
        "attacks": len(findings),
        "false_alarm": FALSE_ALARM,
        "findings": [msgspec.structs.asdict(finding) for finding in findings],
    }
