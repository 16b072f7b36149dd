"""Plugs that say which device asks for a token.

Another distribution adds one, such as the attestation of a platform, by an entry point of the group
``privateer.attestations``: a function that takes the issuer's environment variables and returns an `Attestation`.
"""

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, Protocol

from privateer_core.errors import SpecError
from privateer_core.serving.settings import unset
from privateer_core.wire.attestation import check_attestation

GROUP: Final = "privateer.attestations"
SECRETS: Final = "PRIVATEER_ATTESTATION_SECRETS"
_SECRET_MIN: Final = 32


class Attestation(Protocol):
    """Says which device asks. It sees identity and time, and nothing of the token."""

    async def device(self, text: str, experiment: str, now: float) -> str | None:
        """Return what the issuer knows the device by, the same each time; None: devices are not distinguished.

        text: the request's header ``privateer-attestation``; empty if there is none.
        experiment: name of the experiment.
        now: seconds since 1970.
        """
        ...


Factory = Callable[[Mapping[str, str]], Attestation]


class Open:
    """Believes everybody and counts nobody: for tests, and behind a gateway that does both."""

    def __init__(self, _: Mapping[str, str]) -> None: ...

    async def device(self, text: str, experiment: str, now: float) -> str | None:  # noqa: ARG002
        """Return None."""
        return None


class Hmac:
    """Believes what the application's backend has signed (`privateer_core.wire.attestation.attest`)."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        if not environment.get(SECRETS):
            raise unset(SECRETS, "a file of secrets, hexadecimal, one a line")
        path = Path(environment[SECRETS])
        try:
            self._secrets = [bytes.fromhex(line) for line in path.read_text("ascii").split()]
        except (OSError, ValueError):
            self._secrets = []
        if not self._secrets or min(map(len, self._secrets)) < _SECRET_MIN:
            detail, remedy = f"{path.name} holds no secrets of 32 bytes or more", f"openssl rand -hex 32 > {path.name}"
            raise SpecError(detail, field=SECRETS, remedy=remedy)

    async def device(self, text: str, experiment: str, now: float) -> str | None:
        """Return the pseudonym that the backend signed."""
        return check_attestation(text, experiment, self._secrets, now)


_OWN: Final[Mapping[str, Factory]] = {"open": Open, "hmac": Hmac}


def attestation(name: str, environment: Mapping[str, str]) -> Attestation:
    """Return the plug of a name."""
    if name in _OWN:
        return _OWN[name](environment)
    others = {one.name: one for one in entry_points(group=GROUP)}
    if name not in others:
        known = ", ".join([*_OWN, *sorted(others)])
        raise SpecError(
            f"there is no attestation {name!r}", field="PRIVATEER_ATTESTATION", remedy=f"choose from {known}"
        )
    made: Attestation = others[name].load()(environment)
    return made
