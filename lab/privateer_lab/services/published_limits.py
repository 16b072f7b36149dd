"""Asks services for the limits that they publish."""

from typing import Final, TypeVar

import msgspec

from privateer_core.errors import PrivateerError
from privateer_core.serving.admission import ServerLimits, ShufflerLimits
from privateer_core.spec.spec import Spec
from privateer_lab.planning.admission import KnownLimits
from privateer_lab.services.rest import ask

_SECONDS: Final = 5.0
"""A service that does not say its limits by then counts as one that does not answer."""
LimitsT = TypeVar("LimitsT", ServerLimits, ShufflerLimits)


def ask_limits(spec: Spec, admin_url: str, shuffler_url: str) -> KnownLimits:
    """Return the limits of the services that a spec needs; those as shipped where one does not answer."""
    assumed = list[str]()

    def asked(service: str, url: str, field: str, kind: type[LimitsT]) -> LimitsT:
        try:
            return msgspec.convert(ask("GET", f"{url}/limits", field=field, seconds=_SECONDS), kind)
        except msgspec.ValidationError:
            reason = "the answer is not a Privateer service's"
        except PrivateerError as error:
            reason = error.detail
        assumed.append(f"limits of the {service} are taken as shipped: {reason} ({field})")
        return kind()

    server = asked("server", admin_url, "--admin-url", ServerLimits)
    if not spec.privacy.trust.shuffled:
        return KnownLimits(server, assumed=tuple(assumed))
    return KnownLimits(server, asked("shuffler", shuffler_url, "--shuffler", ShufflerLimits), tuple(assumed))
