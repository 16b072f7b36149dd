"""The shuffler's settings, from environment variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from privateer.errors import SpecError


@dataclass(frozen=True)
class Settings:
    """What an operator decides.

    Attributes
    ----------
    server_url
        The learning server's private listener, the one address that the shuffler calls (``PRIVATEER_SERVER_URL``).
    data
        Folder of the key and the held rounds (``PRIVATEER_DATA``).
    public_key_file
        Where the public key goes, for the server to trust (``PRIVATEER_PUBLIC_KEY_FILE``, in ``data`` by default).
    min_batch
        The operator's own floor: experiments whose rounds are smaller find no shuffler here (``PRIVATEER_MIN_BATCH``).
    host, port
        Where devices are listened to (``PRIVATEER_HOST``, ``PRIVATEER_PORT``).
    body_limit
        Bytes that one request may carry (``PRIVATEER_BODY_LIMIT``).
    body_budget
        Bytes that all bodies together may take in memory (``PRIVATEER_BODY_BUDGET``).
    admin_host, admin_port
        Where operators are listened to (``PRIVATEER_ADMIN_HOST``, ``PRIVATEER_ADMIN_PORT``).
    sender_keys
        Files, or directories of ``*.pub`` files, with the public keys of trusted senders, who may send several people's
        reports at once (``PRIVATEER_SENDER_KEYS``).
    server_ca
        Certificates (PEM) of the authorities that the server's certificate may be from, instead of the public ones
        (``PRIVATEER_SERVER_CA``).
    """

    server_url: str
    data: Path
    public_key_file: Path
    min_batch: int = 100
    host: str = "127.0.0.1"
    port: int = 8001
    body_limit: int = 8 << 20
    body_budget: int = 64 << 20
    admin_host: str = "127.0.0.1"
    admin_port: int = 8003
    sender_keys: tuple[Path, ...] = ()
    server_ca: Path | None = None


def read_settings(environment: Mapping[str, str]) -> Settings:
    """Settings from environment variables.

    Raises
    ------
    SpecError
        If one misses its constraint; ``field`` is the variable.
    """
    data = Path(environment.get("PRIVATEER_DATA") or "data/shuffler")
    body_limit = _integer(environment, "PRIVATEER_BODY_LIMIT", Settings.body_limit, 1 << 10, 1 << 30)
    url = _url(environment, "PRIVATEER_SERVER_URL", "http://127.0.0.1:8002")
    return Settings(
        server_url=url,
        data=data,
        public_key_file=Path(environment.get("PRIVATEER_PUBLIC_KEY_FILE") or data / "shuffler.pub"),
        min_batch=_integer(environment, "PRIVATEER_MIN_BATCH", Settings.min_batch, 1, 1 << 31),
        host=environment.get("PRIVATEER_HOST") or Settings.host,
        port=_integer(environment, "PRIVATEER_PORT", Settings.port, 1, 65535),
        body_limit=body_limit,
        body_budget=_integer(environment, "PRIVATEER_BODY_BUDGET", Settings.body_budget, body_limit, 1 << 40),
        admin_host=environment.get("PRIVATEER_ADMIN_HOST") or Settings.admin_host,
        admin_port=_integer(environment, "PRIVATEER_ADMIN_PORT", Settings.admin_port, 1, 65535),
        sender_keys=_paths(environment, "PRIVATEER_SENDER_KEYS"),
        server_ca=_authorities(environment, "PRIVATEER_SERVER_CA", url),
    )


def _paths(environment: Mapping[str, str], name: str) -> tuple[Path, ...]:
    return tuple(Path(part) for part in environment.get(name, "").split(os.pathsep) if part)


def _authorities(environment: Mapping[str, str], name: str, url: str) -> Path | None:
    path = environment.get(name)
    if path and not url.startswith("https:"):
        raise SpecError("is for an https address", field=name, remedy="set PRIVATEER_SERVER_URL to one, or unset it")
    return Path(path) if path else None


def _url(environment: Mapping[str, str], name: str, default: str) -> str:
    url = environment.get(name) or default
    try:
        parts = urlsplit(url)
        well_formed = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        well_formed = False
    if not well_formed or parts.query or parts.fragment:
        raise SpecError("must be an http or https address", field=name, remedy=f"for example {default}")
    return url.rstrip("/")


def _integer(environment: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = environment.get(name) or str(default)
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise SpecError(f"must be a whole number from {low} to {high}", field=name, remedy=f"for example {default}")
    return value
