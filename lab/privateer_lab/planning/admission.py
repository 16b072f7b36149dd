"""Why services would refuse a spec: by limits that they have published, or by those that they are shipped with."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from privateer_core.errors import SpecError
from privateer_core.privacy.order import concerns_of
from privateer_core.privacy.trust import TIGHT
from privateer_core.serving.admission import ServerLimits, ShufflerLimits, refuse
from privateer_core.spec.spec import Spec
from privateer_server.experiments.experiment_admission import find_experiment_refusals
from privateer_server.rounds.loop import Schedule


class KnownLimits(NamedTuple):
    """Limits of the services, and a sentence for each service that did not say its own."""

    server: ServerLimits = ServerLimits()
    shuffler: ShufflerLimits = ShufflerLimits()
    assumed: tuple[str, ...] = ()


def check_admission(spec: Spec, limits: KnownLimits, begin: Callable[[Any], Any] | None = None) -> int:
    """Return the people whom the first round asks, or raise all reasons for which the services would refuse it."""
    people, refusals = _open(spec, limits, begin)
    refuse(refusals, "; ".join(limits.assumed))
    return people


def concerns_before_start(spec: Spec) -> list[str]:
    """Say what is probably not meant, and why services as they are shipped would refuse the spec."""
    concerns = concerns_of(spec)
    if spec.privacy.trust.calibration == TIGHT:
        with suppress(SpecError):  # whoever tries the spec out hears of it
            refusals = _open(spec, KnownLimits())[1]
            concerns += [f"services as they are shipped refuse this spec: {refusal}" for refusal in refusals]
    return concerns


def _open(spec: Spec, limits: KnownLimits, begin: Callable[[Any], Any] | None = None) -> tuple[int, list[SpecError]]:
    schedule = Schedule(spec)
    first = schedule.open(0, 1, begin(schedule) if begin else None)
    return first.batch, find_experiment_refusals(schedule, first, limits.server, limits.shuffler)
