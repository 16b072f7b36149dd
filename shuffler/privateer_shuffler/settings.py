"""The shuffler's settings, from environment variables, and what it requires of an experiment's rounds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from privateer_core.errors import SpecError
from privateer_core.serving.http.cors import origins
from privateer_core.serving.http.listeners import host_names
from privateer_core.serving.settings import PORT_MAX, SIZE_MAX, STORE_KEY, check_database, number, paths, required
from privateer_core.serving.token_gate import TokenSettings
from privateer_core.wire.identity import read_keys
from privateer_core.wire.publication import Round

BATCH_BYTES_MAX: Final = 1 << 30
"""Sealed bytes of the largest batch: it is assembled in memory, and its disk space is reserved when the round opens."""
MESSAGES_MAX: Final = 1 << 24
"""Sealed messages of the largest batch: a fingerprint of each is in memory."""


@dataclass(frozen=True)
class ShufflerSettings:
    """What an operator decides.

    Attributes
    ----------
    server_url
        The learning server's private listener, the one address that the shuffler calls (``PRIVATEER_SERVER_URL``).
    data
        Folder of the key and the held rounds (``PRIVATEER_DATA``); not used if replicas share a database.
    public_key_file
        Where the public key goes, for the server to trust (``PRIVATEER_PUBLIC_KEY_FILE``). By default it goes to
        ``data``, or nowhere if replicas share a database.
    min_batch
        The operator's own floor: the shuffler takes no reports for smaller rounds (``PRIVATEER_MIN_BATCH``).
    host, port
        Address of the public listener, for devices (``PRIVATEER_HOST``, ``PRIVATEER_PORT``).
    body_limit
        Bytes that one request may carry (``PRIVATEER_BODY_LIMIT``).
    body_budget
        Bytes that all bodies together may take in memory (``PRIVATEER_BODY_BUDGET``).
    admin_host, admin_port
        Address of the private listener, for operators (``PRIVATEER_ADMIN_HOST``, ``PRIVATEER_ADMIN_PORT``).
    admin_names
        Names by which they call it besides (``PRIVATEER_ADMIN_NAMES``).
    sender_keys
        Files, or directories of ``*.pub`` files, with the public keys of trusted senders, who may send several people's
        reports at once (``PRIVATEER_SENDER_KEYS``).
    server_ca
        Certificates (PEM) of the authorities that may sign the server's certificate, instead of the public ones
        (``PRIVATEER_SERVER_CA``).
    origins
        Origins whose pages may send reports from a browser; none by default (``PRIVATEER_ORIGINS``).
    server_key
        Public keys with which the server may sign its publications (``PRIVATEER_SERVER_KEY``: 64 hexadecimal digits,
        several separated by commas); empty: the first that the shuffler meets, from then on.
    tokens
        Whether reports come with upload tokens alone, and whose.
    database
        Where PostgreSQL is, if replicas share what they hold (``PRIVATEER_DATABASE``); empty: it is in ``data``.
    store_key_file
        The file with the key that encrypts what is held there, 32 bytes (``PRIVATEER_STORE_KEY_FILE``).
    signing_key
        The file with the key that signs batches (``PRIVATEER_SIGNING_KEY``), the same for all replicas; in ``data`` by
        default.
    """

    server_url: str
    data: Path
    public_key_file: Path | None
    min_batch: int = 100
    host: str = "127.0.0.1"
    port: int = 8001
    body_limit: int = 8 << 20
    body_budget: int = 64 << 20
    admin_host: str = "127.0.0.1"
    admin_port: int = 8003
    sender_keys: tuple[Path, ...] = ()
    server_ca: Path | None = None
    origins: tuple[str, ...] = ()
    server_key: frozenset[bytes] = frozenset()
    tokens: TokenSettings = field(default_factory=TokenSettings)
    admin_names: tuple[str, ...] = ()
    database: str = field(default="", repr=False)
    store_key_file: Path | None = None
    signing_key: Path | None = None


def read_settings(environment: Mapping[str, str]) -> ShufflerSettings:
    """Read the settings from environment variables.

    Raises
    ------
    SpecError
        If one misses its constraint; ``field`` is the variable.
    """
    data = Path(environment.get("PRIVATEER_DATA") or "data/shuffler")
    body_limit = number(environment, "PRIVATEER_BODY_LIMIT", ShufflerSettings.body_limit, 1 << 30, 1 << 10)
    url = _url(environment, "PRIVATEER_SERVER_URL", "http://127.0.0.1:8002")
    port = number(environment, "PRIVATEER_PORT", ShufflerSettings.port, PORT_MAX)
    database = _database(environment)
    public_key_file = environment.get("PRIVATEER_PUBLIC_KEY_FILE")
    return ShufflerSettings(
        server_url=url,
        data=data,
        public_key_file=Path(public_key_file or data / "shuffler.pub") if public_key_file or not database else None,
        min_batch=number(environment, "PRIVATEER_MIN_BATCH", ShufflerSettings.min_batch, 1 << 31),
        host=environment.get("PRIVATEER_HOST") or ShufflerSettings.host,
        port=port,
        body_limit=body_limit,
        body_budget=number(environment, "PRIVATEER_BODY_BUDGET", ShufflerSettings.body_budget, SIZE_MAX, body_limit),
        admin_host=environment.get("PRIVATEER_ADMIN_HOST") or ShufflerSettings.admin_host,
        admin_port=number(environment, "PRIVATEER_ADMIN_PORT", ShufflerSettings.admin_port, PORT_MAX),
        admin_names=host_names(environment),
        sender_keys=paths(environment, "PRIVATEER_SENDER_KEYS"),
        server_ca=_authorities(environment, "PRIVATEER_SERVER_CA", url),
        origins=origins(environment),
        server_key=read_keys(environment.get("PRIVATEER_SERVER_KEY") or "", "PRIVATEER_SERVER_KEY"),
        tokens=TokenSettings.read(environment, f"127.0.0.1:{port}"),
        database=database,
        store_key_file=_path(environment, "PRIVATEER_STORE_KEY_FILE"),
        signing_key=_path(environment, "PRIVATEER_SIGNING_KEY"),
    )


def _path(environment: Mapping[str, str], name: str) -> Path | None:
    return Path(environment[name]) if environment.get(name) else None


def _database(environment: Mapping[str, str]) -> str:
    """Return where the database is; see that what goes with it is there, too."""
    address = environment.get("PRIVATEER_DATABASE", "")
    if address:
        check_database(environment, "PRIVATEER_DATABASE")
        required(environment, "PRIVATEER_STORE_KEY_FILE", STORE_KEY)
        required(
            environment, "PRIVATEER_SIGNING_KEY", "the file of the key that signs batches, the same on all replicas"
        )
    return address


def _authorities(environment: Mapping[str, str], name: str, url: str) -> Path | None:
    path = environment.get(name)
    if path and not url.startswith("https:"):
        raise SpecError(
            "is only for an https address", field=name, remedy="set PRIVATEER_SERVER_URL to one, or unset it"
        )
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


@dataclass(frozen=True)
class Requirements:
    """The operator's own conditions.

    Attributes
    ----------
    min_batch
        The shuffler never releases fewer people's reports at once, whatever an experiment asks for.
    """

    min_batch: int

    def check(self, round_: Round) -> None:
        """Refuse a round that may close with too few reports, or is too large to hold.

        Raises
        ------
        SpecError
            Naming the constraint that the experiment misses.
        """
        if round_.fewest < self.min_batch:
            raise SpecError(
                f"rounds of this experiment close at {round_.fewest} reports, "
                f"but this shuffler releases no fewer than {self.min_batch} at once",
                field="privacy.min_batch",
                remedy="create the experiment with larger rounds, or report through another shuffler",
            )
        messages = round_.batch * round_.messages
        if messages > MESSAGES_MAX or messages * round_.sealed_size > BATCH_BYTES_MAX:
            raise SpecError(
                f"a batch of this experiment is larger than {BATCH_BYTES_MAX} bytes or {MESSAGES_MAX} messages",
                field="algorithm.round_size",
                remedy="create the experiment with smaller rounds",
            )
