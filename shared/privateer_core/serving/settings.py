"""Settings of a service: each is declared once, as a field with its bounds and its meaning.

From these fields follow what is read from environment variables, what a refusal says, and the table in
docs/configuration.md.
"""

import argparse
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn, Self, get_args
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from privateer_core.clock import Clock
from privateer_core.errors import SpecError
from privateer_core.serving.http.listeners import ANY
from privateer_core.serving.logs import BUILD
from privateer_core.serving.token_gate import IsSpent, TokenGate, TokenKeys, never_spent

STORE_KEY: Final = "a file of 32 bytes, such as openssl rand -out FILE 32 writes"
_PREFIX: Final = "PRIVATEER_"
_WHERE: Final = "Its settings are environment variables that begin with PRIVATEER_; docs/configuration.md lists them."
_HOST_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?")
_SCHEMES: Final = ("postgresql://", "postgres://")


class ServiceParser(argparse.ArgumentParser):
    """Reads the command line of a service: it knows ``--help`` and ``--version``, and refuses what it does not know.

    name: the command's name.
    purpose: what the service does, in one sentence.
    """

    def __init__(self, name: str, purpose: str) -> None:
        super().__init__(prog=name, description=f"{purpose} {_WHERE}", allow_abbrev=False)
        self.add_argument("--version", action="version", version=f"{name} {BUILD}")

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line, and exit with code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class UnfitSetting(ValueError):
    """A value misses the constraint of its setting; `Settings.read` adds the variable.

    detail, remedy: what is wrong, without a secret in it, and what to do.
    """

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.detail, self.remedy = detail, remedy


class DefaultText:
    """A mark of a setting: how the table shows a default that does not speak for itself."""

    def __init__(self, default: str) -> None:
        self.default = default


def from_text(parse: Callable[[str], Any]) -> BeforeValidator:
    """Parse what a variable says; a value that code gives is taken as it is."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def words(text: str) -> tuple[str, ...]:
    """Return the words of a list, which commas or spaces separate."""
    return tuple(text.replace(",", " ").split())


def _origins(text: str) -> tuple[str, ...]:
    for one in words(text):
        if one != ANY and not _is_origin(one):
            remedy = "list origins such as https://shop.example, separated by spaces, or * for all"
            raise UnfitSetting(f"{one!r} is no origin", remedy)
    return words(text)


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    # A browser sends origins in lower case and without a slash at their end.
    return is_web and text == text.lower() and text == f"{parts.scheme}://{parts.netloc}" and "@" not in text


def _host_names(text: str) -> tuple[str, ...]:
    for one in words(text):
        if not _HOST_NAME.fullmatch(one):
            remedy = "list names such as server.internal in lower case, without ports, separated by commas"
            raise UnfitSetting(f"{one!r} is no name of a host", remedy)
    return words(text)


def _service_names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, map(str.strip, text.split(","))))
    if not names or not all(name.isascii() and "/" not in name for name in names):
        raise UnfitSetting("is no name of a service", "write host or host:port")
    return names


def _is_required(text: str) -> bool:
    if text not in ("off", "required"):
        raise UnfitSetting("is neither off nor required", "set it to one of them")
    return text == "required"


def _database(text: str) -> str:
    if text and not text.startswith(_SCHEMES):
        raise UnfitSetting("is no address of a PostgreSQL database", "give postgresql://HOST/NAME")
    return text


_Port = Annotated[int, Field(ge=1, le=65_535)]
PublicPort = Annotated[_Port, Field(description="port of the public listener")]
PrivatePort = Annotated[
    _Port, Field(description="port of the private listener, for operators and, at the server, shufflers")
]
Size = Annotated[int, Field(ge=1, le=1 << 40)]
"""Bytes."""
BodyBudget = Annotated[
    Size, Field(description="memory for all request bodies together, in bytes; at least the largest of them")
]
Database = Annotated[str, from_text(_database)]
Paths = Annotated[
    tuple[Path, ...],
    from_text(lambda text: tuple(Path(part) for part in text.split(os.pathsep) if part)),
]
"""Paths separated as in ``PATH``."""


class _Variables(PydanticBaseSettingsSource):
    """The values that environment variables give; one that is empty counts as missing."""

    def __init__(self, settings: type[BaseSettings], given: Mapping[str, str]) -> None:
        super().__init__(settings)
        self._given = given

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return the text of a field's variable; settings that are a field have variables of their own."""
        group = _group(field)
        value = group.read(self._given) if group else self._given.get(_variable_of(field, field_name))
        return value, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the values by the names of their fields."""
        fields = {name: field for name, field in self.settings_cls.model_fields.items() if not field.exclude}
        found = {name: self.get_field_value(field, name)[0] for name, field in fields.items()}
        return {name: value for name, value in found.items() if value}


class Settings(BaseSettings):
    """Settings that ``PRIVATEER_*`` variables give; code may give them by name."""

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=True, validate_default=True
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what code gives alone: `read` is what reads variables."""
        return (init_settings,)

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> Self:
        """Read the settings from environment variables; one that is empty counts as missing."""
        try:
            return cls(**_Variables(cls, variables)())
        except ValidationError as error:
            raise cls._refusal(error) from None

    @classmethod
    def variables(cls) -> dict[str, FieldInfo]:
        """Return the fields by the variables that give them, also those of settings that are a field."""
        found = dict[str, FieldInfo]()
        for name, field in cls.model_fields.items():
            if group := _group(field):
                found |= group.variables()
            elif not field.exclude:
                found[_variable_of(field, name)] = field
        return found

    @classmethod
    def _refusal(cls, error: ValidationError) -> SpecError:
        """Return the first error as a person can act on it; it has no value in it, which may be a secret."""
        first = error.errors(include_url=False, include_input=False)[0]
        place = str(first["loc"][0])  # a field, or the variable that it is named by
        name = place if place.startswith(_PREFIX) else _variable_of(cls.model_fields[place], place)
        field = cls.variables()[name]
        unfit = first.get("ctx", {}).get("error")
        if isinstance(unfit, UnfitSetting):
            return SpecError(unfit.detail, field=name, remedy=unfit.remedy)
        if first["type"] == "missing":
            return unset(name, field.description or "")
        if choices := get_args(field.annotation):
            return SpecError(f"is no {field.title}", field=name, remedy=f"set it to {' or '.join(choices)}")
        marks = ((key, getattr(mark, key, None)) for mark in field.metadata for key in ("ge", "le"))
        bounds = {key: one for key, one in marks if one is not None}
        remedy = f"give a number from {bounds['ge']} to {bounds['le']}"
        return SpecError("is not a whole number in range", field=name, remedy=remedy)


def _group(field: FieldInfo) -> type[Settings] | None:
    """Return the settings that a field holds, if it holds any."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None


def _variable_of(field: FieldInfo, name: str) -> str:
    return str(field.validation_alias or variable(name))


def variable(name: str) -> str:
    """Return the variable that gives the setting of a name."""
    return f"{_PREFIX}{name.upper()}"


def unset(name: str, meaning: str) -> SpecError:
    """Return the refusal of a variable that is missing."""
    return SpecError("is not set", field=name, remedy=f"set it to {meaning}")


def logs_json(variables: Mapping[str, str]) -> bool:
    """Whether ``PRIVATEER_LOG`` asks for JSON, so that also what is wrong with the settings is told so."""
    return variables.get(variable("log")) == "json"


class ServiceSettings(Settings):
    """Settings of every service: its log, and where it listens."""

    log: Literal["text", "json"] = Field(
        default="text",
        title="form of logs",
        description="`json`: one JSON object a line on standard error ([log lines](operations/logs.md#json))",
    )
    host: str = Field(default="127.0.0.1", description="address of the public listener")
    port: PublicPort
    admin_host: str = Field(default="127.0.0.1", description="address of the private listener")
    admin_port: PrivatePort
    admin_names: Annotated[tuple[str, ...], from_text(_host_names)] = Field(
        default=(),
        description="names by which operators and shufflers call the private listener, such as `server.internal`, "
        "separated by commas; addresses in digits, `localhost` and `PRIVATEER_ADMIN_HOST` need none "
        "([listeners](operations/install.md#public-and-private-listeners))",
    )
    origins: Annotated[tuple[str, ...], from_text(_origins)] = Field(
        default=(),
        description="origins whose pages may use the public listener from a browser, such as `https://shop.example`, "
        "separated by spaces; `*` for all ([web](web.md#whose-pages-may-ask))",
    )


class TokenSettings(Settings):
    """Whether reports come with upload tokens, and whose."""

    required: Annotated[bool, from_text(_is_required), DefaultText("`off`")] = Field(
        default=False,
        validation_alias="PRIVATEER_TOKENS",
        description="`required`: reports come with [upload tokens](tokens.md), but those of trusted senders",
    )
    keys: str = Field(
        default="",
        repr=False,  # an address may have a password in it
        validation_alias="PRIVATEER_TOKEN_KEYS",
        description="file or folder (`*.json`) of issuers' public keys, one issuer for an experiment; or an issuer's "
        "address",
    )
    origins: Annotated[tuple[str, ...], from_text(_service_names), DefaultText("`127.0.0.1:` and the port")] = Field(
        default=(),
        validation_alias="PRIVATEER_ORIGIN",
        description="names by which devices know the service, separated by commas: host, and port unless it is 443",
    )

    @model_validator(mode="after")
    def _has_keys(self) -> Self:
        if self.required and not self.keys:
            raise unset("PRIVATEER_TOKEN_KEYS", "the file or folder of the issuer's keys, or its address")
        return self

    def gate(self, is_spent: IsSpent = never_spent, clock: Clock | None = None) -> TokenGate | None:
        """Return the gate; None if no keys are named."""
        return TokenGate(TokenKeys(self.keys), self.origins, is_spent, clock) if self.keys else None


class UploadSettings(ServiceSettings):
    """Settings of a service to which devices send reports."""

    sender_keys: Paths = Field(
        default=(),
        description="files, or directories of `*.pub` files, with the public keys of trusted senders, who may upload "
        "several people's reports at once; separated by `:`",
    )
    body_budget: BodyBudget
    tokens: TokenSettings = Field(default_factory=TokenSettings)

    @field_validator("tokens")
    @classmethod
    def _named(cls, tokens: TokenSettings, info: ValidationInfo) -> TokenSettings:
        """Name a service that has no other name by its port."""
        return (
            tokens if tokens.origins else tokens.model_copy(update={"origins": (f"127.0.0.1:{info.data.get('port')}",)})
        )
