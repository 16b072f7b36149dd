"""The issuer's settings, from environment variables."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from privateer_core.errors import SpecError
from privateer_core.serving.http.cors import origins
from privateer_core.serving.http.listeners import host_names
from privateer_core.serving.settings import PORT_MAX, number, required

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_SERVER_NAME: Final = re.compile(r"[A-Za-z0-9.\[\]:-]{1,255}")
_DAYS_MAX: Final = 3650
_SHARE_MAX: Final = 10_000


@dataclass(frozen=True)
class IssuerSettings:
    """What an operator decides.

    Attributes
    ----------
    data
        Folder of the keys, and of what each device has had (``PRIVATEER_DATA``).
    experiments
        Names of the experiments to issue tokens for (``PRIVATEER_EXPERIMENTS``, separated by commas).
    name
        How devices reach the issuer: host, and port unless it is 443 (``PRIVATEER_ISSUER_NAME``).
    attestation
        The plug that says which device asks (``PRIVATEER_ATTESTATION``).
    tokens_per_device
        Tokens of an experiment that a device may have (``PRIVATEER_TOKENS_PER_DEVICE``).
    key_days
        Days after which a key gets a successor. It is valid for as many more (``PRIVATEER_KEY_DAYS``).
    public_keys_file
        Where the public keys go, for shufflers and servers (``PRIVATEER_PUBLIC_KEY_FILE``, in ``data`` by default).
    host, port, admin_host, admin_port
        Addresses of the public listener and of the private one.
    admin_names
        Names by which operators call the private one besides (``PRIVATEER_ADMIN_NAMES``).
    environment
        All variables, for the plug.
    origins
        Origins whose pages may get tokens from a browser; none by default (``PRIVATEER_ORIGINS``).
    """

    data: Path
    experiments: tuple[str, ...]
    name: str
    attestation: str
    tokens_per_device: int = 1
    key_days: int = 90
    public_keys_file: Path = Path("data/issuer/issuer.json")
    host: str = "127.0.0.1"
    port: int = 8004
    admin_host: str = "127.0.0.1"
    admin_port: int = 8005
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    admin_names: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()


def read_settings(environment: Mapping[str, str]) -> IssuerSettings:
    """Read the settings from environment variables.

    Raises
    ------
    SpecError
        If one misses its constraint; ``field`` is the variable.
    """
    data = Path(environment.get("PRIVATEER_DATA") or "data/issuer")
    port = number(environment, "PRIVATEER_PORT", IssuerSettings.port, PORT_MAX)
    return IssuerSettings(
        data=data,
        experiments=_experiments(environment),
        name=_name(environment, f"127.0.0.1:{port}"),
        attestation=required(
            environment, "PRIVATEER_ATTESTATION", "hmac, or the name of another plug; open trusts all"
        ),
        tokens_per_device=number(
            environment, "PRIVATEER_TOKENS_PER_DEVICE", IssuerSettings.tokens_per_device, _SHARE_MAX
        ),
        key_days=number(environment, "PRIVATEER_KEY_DAYS", IssuerSettings.key_days, _DAYS_MAX),
        public_keys_file=Path(environment.get("PRIVATEER_PUBLIC_KEY_FILE") or data / "issuer.json"),
        host=environment.get("PRIVATEER_HOST") or IssuerSettings.host,
        port=port,
        admin_host=environment.get("PRIVATEER_ADMIN_HOST") or IssuerSettings.admin_host,
        admin_port=number(environment, "PRIVATEER_ADMIN_PORT", IssuerSettings.admin_port, PORT_MAX),
        admin_names=host_names(environment),
        origins=origins(environment),
        environment=dict(environment),
    )


def _experiments(environment: Mapping[str, str]) -> tuple[str, ...]:
    text = required(environment, "PRIVATEER_EXPERIMENTS", "the names of experiments, separated by commas")
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or not all(map(_NAME.fullmatch, names)):
        raise SpecError(
            "is no list of experiments", field="PRIVATEER_EXPERIMENTS", remedy="write names, separated by commas"
        )
    return names


def _name(environment: Mapping[str, str], default: str) -> str:
    name = environment.get("PRIVATEER_ISSUER_NAME") or default
    if not _SERVER_NAME.fullmatch(name):
        raise SpecError(
            "is no name of a service",
            field="PRIVATEER_ISSUER_NAME",
            remedy="write issuer.example or issuer.example:8443",
        )
    return name
