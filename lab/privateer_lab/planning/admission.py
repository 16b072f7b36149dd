"""Checks of a spec against the limits of services, as they publish them or as shipped."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from privateer_core.errors import PrivateerError, SpecError
from privateer_core.privacy.cell_reports import describe_horizon_concerns
from privateer_core.privacy.order import list_concerns
from privateer_core.privacy.trust import CALIBRATIONS, Recipient
from privateer_core.serving.admission import ServerLimits, ShufflerLimits, raise_refusals
from privateer_core.spec.spec import Spec
from privateer_lab.services.rest import request_json
from privateer_server.experiments.experiment import find_experiment_refusals
from privateer_server.rounds.schedule import Schedule


class KnownLimits(NamedTuple):
    """Limits of the services, and a sentence for each service whose limits are assumed."""

    server: ServerLimits = ServerLimits()
    shuffler: ShufflerLimits = ShufflerLimits()
    assumed: tuple[str, ...] = ()


def check_admission(spec: Spec, limits: KnownLimits, begin: Callable[[Any], Any] | None = None) -> int:
    """Return the batch size of the first round, or raise all refusals of the services."""
    n_participants, refusals = _open(spec, limits, begin)
    raise_refusals(refusals, "; ".join(limits.assumed))
    return n_participants


def concerns_before_start(spec: Spec, *, gains: bool = False) -> list[str]:
    """Return concerns about a spec, and the refusals of services as shipped.

    gains: whether it gains in runs, so that it is wrong that its people tell little of features.
    """
    refuted = {*describe_horizon_concerns(spec)} if gains else set[str]()
    concerns = [concern for concern in list_concerns(spec) if concern not in refuted]
    if spec.privacy.trust.calibration in CALIBRATIONS:
        with suppress(SpecError):  # which a trial of the spec raises
            refusals = _open(spec, KnownLimits())[1]
            concerns += [f"services as they are shipped refuse this spec: {refusal}" for refusal in refusals]
    return concerns


def _open(spec: Spec, limits: KnownLimits, begin: Callable[[Any], Any] | None = None) -> tuple[int, list[SpecError]]:
    schedule = Schedule(spec)
    first = schedule.open(0, 1, begin(schedule) if begin else None)
    return first.batch_size, find_experiment_refusals(schedule, first, limits.server, limits.shuffler)


_TIMEOUT_SECONDS: Final = 5.0
"""Timeout of a request for limits."""
LimitsT = TypeVar("LimitsT", ServerLimits, ShufflerLimits)


def ask_limits(spec: Spec, admin_url: str, shuffler_url: str) -> KnownLimits:
    """Request the limits of the services that a spec needs; those as shipped for a service that does not answer."""
    if spec.privacy.trust.is_simulated:  # no service takes it, whatever its limits
        return KnownLimits()
    assumed = list[str]()

    def ask_service(service: str, url: str, field: str, kind: type[LimitsT]) -> LimitsT:
        try:
            limits = request_json("GET", f"{url}/limits", field=field, timeout_seconds=_TIMEOUT_SECONDS)
            return msgspec.convert(limits, kind)
        except msgspec.ValidationError:
            reason = "the answer is not a Privateer service's"
        except PrivateerError as error:
            reason = error.detail
        assumed.append(f"limits of the {service} are taken as shipped: {reason} ({field})")
        return kind()

    server = ask_service("server", admin_url, "--admin-url", ServerLimits)
    if spec.privacy.trust.endpoint is not Recipient.SHUFFLER:
        return KnownLimits(server, assumed=tuple(assumed))
    return KnownLimits(server, ask_service("shuffler", shuffler_url, "--shuffler", ShufflerLimits), tuple(assumed))
