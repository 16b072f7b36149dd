"""Settings of the server, from the environment and command line flags."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.serving.admission import ServerLimits
from privateer_core.serving.settings import (
    STORE_KEY_MEANING,
    BodyBudget,
    Database,
    DefaultText,
    InvalidSetting,
    Paths,
    PrivatePort,
    PublicPort,
    ServiceParser,
    Size,
    UploadSettings,
    from_text,
    unset_error,
    variable_name,
)
from privateer_server.admin_tokens import token_digest

_MAX_OPENERS: Final = 64
_MIN_TOKEN_LENGTH: Final = 16
_TOKEN_REQUIREMENT: Final = f"at least {_MIN_TOKEN_LENGTH} characters, such as openssl rand -hex 16 prints"


def _digest_token(token: str) -> bytes:
    if len(token) < _MIN_TOKEN_LENGTH:
        raise InvalidSetting("is too short to be safe", f"use {_TOKEN_REQUIREMENT}")
    return token_digest(token)


class ServerSettings(UploadSettings):
    """The server's settings; ``PRIVATEER_DATA`` sets ``data``, and so on."""

    port: PublicPort = 8000
    admin_port: PrivatePort = 8002
    body_budget: BodyBudget = ServerLimits().body_budget
    admin_token: Annotated[bytes, from_text(_digest_token), DefaultText("this or the next is required")] = Field(
        default=b"",
        repr=False,
        description="bearer token that creates, changes and deletes experiments, and fetches backups; 16 characters or "
        "more, such as `openssl rand -hex 16` prints. Only its SHA-256 is kept",
    )
    admin_tokens: Path | None = Field(
        default=None,
        description="file of further tokens with names, scopes and expiries, read anew for each request "
        "([admin tokens](operations/keys.md#admin-tokens))",
    )
    shuffler_keys: Paths = Field(
        default=(),
        description="files or directories of trusted shufflers' public keys (`*.pub`), a file for each organisation; "
        "separated by `:`",
    )
    report_bytes_max: Size = Field(default=ServerLimits().report_bytes_max, description="bytes of the largest upload")
    batch_bytes_max: Size = Field(default=ServerLimits().batch_bytes_max, description="bytes of the largest batch")
    data: Annotated[Path, DefaultText("`data/server` under `privateer serve`, required by `privateer-server`")] = Field(
        default=Path(), description="directory of keys and databases"
    )
    journal: Annotated[Path | None, DefaultText("`journal.db` in the data directory")] = Field(
        default=None, description="file of the journal; best on another disk ([why](operations/data.md#the-journal))"
    )
    decrypt_workers: Annotated[int, Field(ge=0, le=_MAX_OPENERS), DefaultText("the cores")] = Field(
        default=0, description="processes that open reports; `0`: the server opens them itself"
    )
    database: Database = Field(
        default="",
        repr=False,
        description="`postgresql://...`: the data that several servers share; then `PRIVATEER_DATA` and "
        "`PRIVATEER_JOURNAL` are not used ([several servers](operations/scale-servers.md))",
    )
    journal_database: Annotated[Database, DefaultText("required with `PRIVATEER_DATABASE`")] = Field(
        default="",
        repr=False,
        description="another PostgreSQL database, for the journal and the keys of open rounds: never back it up",
    )
    store_key_file: Annotated[Path | None, DefaultText("required with `PRIVATEER_DATABASE`")] = Field(
        default=None,
        description="file of 32 bytes that encrypts the keys of open rounds there, such as `openssl rand -out FILE 32` "
        "writes; no other service has it",
    )
    publication_key: Annotated[
        Path | None, DefaultText("`identity.key` in the data directory; required with `PRIVATEER_DATABASE`")
    ] = Field(
        default=None,
        description="file of the key that signs publications and the log, made if missing; servers that share their "
        "data have the same key ([its key](operations/keys.md#the-servers-key))",
    )
    traces_url: str = Field(
        default="",
        repr=False,  # an address may have a password in it
        description="address of a collector of traces, OTLP over HTTP, such as `http://127.0.0.1:4318` "
        "([traces](operations/watch.md#send-traces))",
    )

    @property
    def limits(self) -> ServerLimits:
        """The published limits by which experiments are admitted."""
        return ServerLimits(self.report_bytes_max, self.batch_bytes_max, self.body_budget)

    @model_validator(mode="after")
    def _check_completeness(self) -> Self:
        """Refuse settings without a required one, or with a body budget below the largest body."""
        if not self.admin_token and self.admin_tokens is None:
            raise unset_error("PRIVATEER_ADMIN_TOKEN", f"{_TOKEN_REQUIREMENT}, or set PRIVATEER_ADMIN_TOKENS")
        if not self.database and "data" not in self.model_fields_set:
            raise unset_error("PRIVATEER_DATA", "a directory for the keys and the database")
        with_database = {
            "journal_database": "a database for the journal and the keys of open rounds, which no backup has",
            "store_key_file": STORE_KEY_MEANING,
            "publication_key": "the file of the key that signs publications, the same on all servers",
        }
        for name, meaning in with_database.items():
            if self.database and not getattr(self, name):
                raise unset_error(variable_name(name), meaning)
        largest = max(self.report_bytes_max, self.batch_bytes_max)
        if self.body_budget < largest:
            remedy = f"give {largest} or more"
            raise SpecError("is less than the largest body", field="PRIVATEER_BODY_BUDGET", remedy=remedy)
        return self


def read_settings(environment: Mapping[str, str], arguments: Sequence[str]) -> ServerSettings:
    """Read settings from ``PRIVATEER_*`` variables and flags, which win; by default each core has a decrypt worker."""
    parser = ServiceParser("privateer-server", "Learns from private reports, and publishes the policy.")
    parser.add_argument("--host", help="address to listen on (PRIVATEER_HOST)")
    parser.add_argument("--port", help="port to listen on (PRIVATEER_PORT)")
    flags = {variable_name(name): text for name, text in vars(parser.parse_args(arguments)).items() if text}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = variable_name("decrypt_workers")
    n_workers = environment.get(workers) or str(min(cores or 1, _MAX_OPENERS))
    return ServerSettings.read({**environment, workers: n_workers, **flags})
