"""The issuer's settings, from environment variables."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from privateer_core.serving.settings import (
    DefaultText,
    InvalidSetting,
    PrivatePort,
    PublicPort,
    ServiceSettings,
    from_text,
)

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9.\[\]:-]{1,255}")
_DAYS_MAX: Final = 3650
_SHARE_MAX: Final = 10_000


def _parse_experiments(text: str) -> tuple[str, ...]:
    """Parse names of experiments, separated by commas; refuse none, or a name that is not allowed."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or not all(map(_NAME.fullmatch, names)):
        raise InvalidSetting("is no list of experiments", "write names, separated by commas")
    return names


def _name(name: str) -> str:
    if not _SERVER_NAME.fullmatch(name):
        raise InvalidSetting("is no name of a service", "write issuer.example or issuer.example:8443")
    return name


class IssuerSettings(ServiceSettings):
    """Settings of the issuer; ``PRIVATEER_DATA`` sets ``data``, and so on."""

    port: PublicPort = 8004
    admin_port: PrivatePort = 8005
    data: Path = Field(
        default=Path("data/issuer"), description="directory of the keys, and of what each device has had"
    )
    experiments: Annotated[tuple[str, ...], from_text(_parse_experiments)] = Field(
        description="the names of the experiments that it issues tokens for, separated by commas"
    )
    name: Annotated[str, from_text(_name), DefaultText("`127.0.0.1:` and the port")] = Field(
        default_factory=lambda fields: f"127.0.0.1:{fields['port']}",
        validation_alias="PRIVATEER_ISSUER_NAME",
        description="how devices know it: host, and port unless it is 443",
    )
    attestation_verifier: str = Field(
        description="`hmac`, or the name of another [plug](tokens.md#attestation); `open` trusts all"
    )
    attestation_secrets: Path | None = Field(
        default=None,
        description="file of the secrets that it shares with the application's backend under `hmac`: hexadecimal, 32 "
        "bytes or more, one a line",
    )
    tokens_per_device: Annotated[int, Field(ge=1, le=_SHARE_MAX)] = Field(
        default=1, description="tokens of an experiment for one device"
    )
    key_days: Annotated[int, Field(ge=1, le=_DAYS_MAX)] = Field(
        default=90, description="days after which a key gets a successor; it is valid for twice as long"
    )
    public_keys_file: Annotated[Path, DefaultText("`issuer.json` in the data directory")] = Field(
        default_factory=lambda fields: fields["data"] / "issuer.json",
        validation_alias="PRIVATEER_PUBLIC_KEY_FILE",
        description="where it writes its public keys, for those who check tokens",
    )
    environment: dict[str, str] = Field(default={}, exclude=True, repr=False, description="all variables, for the plug")


def read_settings(environment: Mapping[str, str]) -> IssuerSettings:
    """Read the settings from environment variables."""
    return IssuerSettings.read(environment).model_copy(update={"environment": dict(environment)})
