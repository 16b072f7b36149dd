"""The shuffler's settings, from environment variables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from privateer_core.errors import SpecError
from privateer_core.serving.admission import ShufflerLimits
from privateer_core.serving.settings import (
    STORE_KEY_MEANING,
    BodyBudget,
    Database,
    DefaultText,
    InvalidSetting,
    PrivatePort,
    PublicPort,
    UploadSettings,
    from_text,
    unset_error,
)
from privateer_core.wire.identity import parse_public_keys

_DEFAULT_LIMITS: Final = ShufflerLimits()


def _parse_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_well_formed = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_well_formed = False
    if not is_well_formed or parts.query or parts.fragment:
        raise InvalidSetting("must be an http or https address", "for example http://127.0.0.1:8002")
    return url.rstrip("/")


def _parse_keys(text: str) -> frozenset[bytes]:
    return parse_public_keys(text, "PRIVATEER_SERVER_KEY")


class ShufflerSettings(UploadSettings):
    """Settings of the shuffler's operator; ``PRIVATEER_DATA`` sets ``data``, and so on."""

    port: PublicPort = 8001
    admin_port: PrivatePort = 8003
    server_url: Annotated[str, from_text(_parse_url)] = Field(
        default="http://127.0.0.1:8002",
        description="the server's private listener, the one address that the shuffler calls",
    )
    database: Database = Field(
        default="",
        repr=False,
        description="`postgresql://...`: a database of its own, for what several shuffler replicas hold together; then "
        "`PRIVATEER_DATA` is not used ([several shufflers](operations/scale-shufflers.md))",
    )
    data: Path = Field(default=Path("data/shuffler"), description="directory of the key and the reports that are held")
    public_key_file: Annotated[
        Path | None, DefaultText("`shuffler.pub` in the data directory; nowhere, if replicas share a database")
    ] = Field(
        default_factory=lambda values: None if values["database"] else values["data"] / "shuffler.pub",
        description="where it writes its public key, for the server to trust",
    )
    min_batch: Annotated[int, Field(ge=1, le=1 << 31)] = Field(
        default=_DEFAULT_LIMITS.min_batch,
        description="the shuffler's own floor under a batch: it takes no reports for smaller rounds",
    )
    body_limit: Annotated[int, Field(ge=1 << 10, le=1 << 30)] = Field(
        default=_DEFAULT_LIMITS.body_limit, description="bytes of the largest upload"
    )
    body_budget: BodyBudget = _DEFAULT_LIMITS.body_budget
    server_ca: Annotated[Path | None, DefaultText("the public authorities")] = Field(
        default=None, description="file (PEM) of the authorities that the server's certificate may be from"
    )
    server_key: Annotated[frozenset[bytes], from_text(_parse_keys), DefaultText("the first key that it meets")] = Field(
        default=frozenset(),
        description="the server's public key, as `privateer log key` prints it; several are separated by commas",
    )
    store_key_file: Annotated[Path | None, DefaultText("required with `PRIVATEER_DATABASE`")] = Field(
        default=None,
        description="file of 32 bytes that encrypts the reports that are held there, such as "
        "`openssl rand -out FILE 32` writes; no other service has it",
    )
    signing_key: Annotated[
        Path | None, DefaultText("`shuffler.key` in the data directory; required with `PRIVATEER_DATABASE`")
    ] = Field(
        default=None, description="file of the key that signs batches, made if missing; replicas have the same key"
    )

    @property
    def limits(self) -> ShufflerLimits:
        """Limits of admitted rounds, which are published."""
        return ShufflerLimits(self.min_batch, self.body_limit, self.body_budget)

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        """Refuse settings that lack or contradict each other."""
        if self.database and not self.store_key_file:
            raise unset_error("PRIVATEER_STORE_KEY_FILE", STORE_KEY_MEANING)
        if self.database and not self.signing_key:
            meaning = "the file of the key that signs batches, the same on all replicas"
            raise unset_error("PRIVATEER_SIGNING_KEY", meaning)
        if self.body_budget < self.body_limit:
            remedy = f"give {self.body_limit} or more"
            raise SpecError("is less than the largest body", field="PRIVATEER_BODY_BUDGET", remedy=remedy)
        if self.server_ca and not self.server_url.startswith("https:"):
            remedy = "set PRIVATEER_SERVER_URL to one, or unset it"
            raise SpecError("is only for an https address", field="PRIVATEER_SERVER_CA", remedy=remedy)
        return self


def read_settings(environment: Mapping[str, str]) -> ShufflerSettings:
    """Read the settings from environment variables."""
    return ShufflerSettings.read(environment)
