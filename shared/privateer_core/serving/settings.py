"""Settings of a service: each is declared once, as a field with its bounds and its meaning.

The environment variables, the messages of refusals and the table in docs/configuration.md follow from these fields.
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
from privateer_core.serving.http.listeners import ANY_ORIGIN
from privateer_core.serving.logs import BUILD
from privateer_core.serving.token_gate import IsSpent, TokenGate, TokenKeys, is_never_spent

STORE_KEY_MEANING: Final = "a file of 32 bytes, such as openssl rand -out FILE 32 writes"
_PREFIX: Final = "PRIVATEER_"
_HOST_NAME_REGEX: Final = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9_])?")
_POSTGRES_SCHEMES: Final = ("postgresql://", "postgres://")


class ServiceParser(argparse.ArgumentParser):
    """The command line parser of a service, with the options ``--help`` and ``--version``."""

    def __init__(self, name: str, purpose: str) -> None:
        note = "Its settings are environment variables that begin with PRIVATEER_; docs/configuration.md lists them."
        super().__init__(prog=name, description=f"{purpose} {note}", allow_abbrev=False)
        self.add_argument("--version", action="version", version=f"{name} {BUILD}")

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, and exit with code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


class InvalidSetting(ValueError):
    """A value that violates the constraint of its setting; `Settings.read` adds the variable.

    detail, remedy: the error, without a secret in it, and its remedy.
    """

    def __init__(self, detail: str, remedy: str) -> None:
        super().__init__(detail)
        self.detail, self.remedy = detail, remedy


class DefaultText:
    """A mark of a setting with the text of its default in the table of settings."""

    def __init__(self, default: str) -> None:
        self.default = default


def from_text(parse: Callable[[str], Any]) -> BeforeValidator:
    """Return a validator that parses text, and passes other values on unchanged."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def split_words(text: str) -> tuple[str, ...]:
    """Split a list at commas and spaces."""
    return tuple(text.replace(",", " ").split())


def _parse_origins(text: str) -> tuple[str, ...]:
    """Split a list of origins, and refuse words that are no origin or ``*``."""
    for origin in split_words(text):
        if origin != ANY_ORIGIN and not _is_origin(origin):
            remedy = "list origins such as https://shop.example, separated by spaces, or * for all"
            raise InvalidSetting(f"{origin!r} is no origin", remedy)
    return split_words(text)


def _is_origin(text: str) -> bool:
    """Whether a text is the origin of web pages, as browsers send it."""
    try:
        parts = urlsplit(text)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    # A browser sends origins in lower case and without a slash at their end.
    return is_web and text == text.lower() and text == f"{parts.scheme}://{parts.netloc}" and "@" not in text


def _parse_host_names(text: str) -> tuple[str, ...]:
    """Split a list of host names, and refuse words that are none."""
    for name in split_words(text):
        if not _HOST_NAME_REGEX.fullmatch(name):
            remedy = "list names such as server.internal in lower case, without ports, separated by commas"
            raise InvalidSetting(f"{name!r} is no name of a host", remedy)
    return split_words(text)


def _parse_services(text: str) -> tuple[str, ...]:
    """Split a list of services at commas, and refuse an empty list and names that are none."""
    names = tuple(filter(None, map(str.strip, text.split(","))))
    if not names or not all(name.isascii() and "/" not in name for name in names):
        raise InvalidSetting("is no name of a service", "write host or host:port")
    return names


def _parse_required(text: str) -> bool:
    if text not in ("off", "required"):
        raise InvalidSetting("is neither off nor required", "set it to one of them")
    return text == "required"


def _parse_database(text: str) -> str:
    if text and not text.startswith(_POSTGRES_SCHEMES):
        raise InvalidSetting("is no address of a PostgreSQL database", "give postgresql://HOST/NAME")
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
Database = Annotated[str, from_text(_parse_database)]
Paths = Annotated[tuple[Path, ...], from_text(lambda text: tuple(map(Path, filter(None, text.split(os.pathsep)))))]
"""Paths separated as in ``PATH``."""


_RENAMED: Final = {
    "PRIVATEER_ADMIN_NAMES": "PRIVATEER_ADMIN_ALLOWED_HOSTS",
    "PRIVATEER_ATTESTATION": "PRIVATEER_ATTESTATION_VERIFIER",
    "PRIVATEER_IDENTITY": "PRIVATEER_PUBLICATION_KEY",
    "PRIVATEER_LOG": "PRIVATEER_LOG_FORMAT",
    "PRIVATEER_OPENERS": "PRIVATEER_DECRYPT_WORKERS",
    "PRIVATEER_ORIGIN": "PRIVATEER_TOKEN_ORIGIN",
    "PRIVATEER_ORIGINS": "PRIVATEER_CORS_ORIGINS",
    "PRIVATEER_TOKENS": "PRIVATEER_UPLOAD_TOKENS",
    "PRIVATEER_TRACES": "PRIVATEER_TRACES_URL",
}
"""Variables of before: a server that ignored the old name of its key would make another key."""


class Settings(BaseSettings):
    """Settings from ``PRIVATEER_*`` variables, or from keyword arguments."""

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
        """Use only keyword arguments as the source, since `read` reads the variables."""
        return (init_settings,)

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> Self:
        """Read the settings from environment variables; an empty variable counts as missing."""
        for old, new in _RENAMED.items():
            if variables.get(old):
                raise SpecError("is no longer a setting", field=old, remedy=f"call it {new}")
        try:
            return cls(**cls._read_fields(variables))
        except ValidationError as error:
            raise cls._convert_error(error) from None

    @classmethod
    def _read_fields(cls, variables: Mapping[str, str]) -> dict[str, Any]:
        """Return the texts of variables, and the nested settings, by field name, without empty ones."""
        values = dict[str, Any]()
        for name, field in cls.model_fields.items():
            if not field.exclude:
                group = _nested_settings(field)
                values[name] = group.read(variables) if group else variables.get(_field_variable(field, name))
        return {name: value for name, value in values.items() if value}

    @classmethod
    def variables(cls) -> dict[str, FieldInfo]:
        """Return the fields by variable, including the fields of nested settings."""
        fields = dict[str, FieldInfo]()
        for name, field in cls.model_fields.items():
            if group := _nested_settings(field):
                fields |= group.variables()
            elif not field.exclude:
                fields[_field_variable(field, name)] = field
        return fields

    @classmethod
    def _convert_error(cls, error: ValidationError) -> SpecError:
        """Return a `SpecError` for the first validation error, without values, which may be secret."""
        first_error = error.errors(include_url=False, include_input=False)[0]
        location = str(first_error["loc"][0])  # a field, or the variable that it is named by
        name = location if location.startswith(_PREFIX) else _field_variable(cls.model_fields[location], location)
        field = cls.variables()[name]
        cause = first_error.get("ctx", {}).get("error")
        if isinstance(cause, InvalidSetting):
            return SpecError(cause.detail, field=name, remedy=cause.remedy)
        if first_error["type"] == "missing":
            return unset_error(name, field.description or "")
        if choices := get_args(field.annotation):
            return SpecError(f"is no {field.title}", field=name, remedy=f"set it to {' or '.join(choices)}")
        marks = ((key, getattr(mark, key, None)) for mark in field.metadata for key in ("ge", "le"))
        bounds = {key: bound for key, bound in marks if bound is not None}
        remedy = f"give a number from {bounds['ge']} to {bounds['le']}"
        return SpecError("is not a whole number in range", field=name, remedy=remedy)


def _nested_settings(field: FieldInfo) -> type[Settings] | None:
    """Return the settings class of a field with nested settings; None for other fields."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, Settings) else None


def _field_variable(field: FieldInfo, name: str) -> str:
    return str(field.validation_alias or variable_name(name))


def variable_name(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"{_PREFIX}{name.upper()}"


def unset_error(name: str, meaning: str) -> SpecError:
    """Return the error about a missing variable."""
    return SpecError("is not set", field=name, remedy=f"set it to {meaning}")


def is_json_log(variables: Mapping[str, str]) -> bool:
    """Whether ``PRIVATEER_LOG_FORMAT`` asks for JSON. Errors of the settings are logged in this form, too."""
    return variables.get(variable_name("log_format")) == "json"


class ServiceSettings(Settings):
    """Settings of every service: its log and its listeners."""

    log_format: Literal["text", "json"] = Field(
        default="text",
        title="form of logs",
        description="`json`: one JSON object a line on standard error ([log lines](operations/logs.md#json))",
    )
    host: str = Field(default="127.0.0.1", description="address of the public listener")
    port: PublicPort
    admin_host: str = Field(default="127.0.0.1", description="address of the private listener")
    admin_port: PrivatePort
    admin_allowed_hosts: Annotated[tuple[str, ...], from_text(_parse_host_names)] = Field(
        default=(),
        description="names by which operators and shufflers call the private listener, such as `server.internal`, "
        "separated by commas; addresses in digits, `localhost` and `PRIVATEER_ADMIN_HOST` need none "
        "([listeners](operations/install.md#public-and-private-listeners))",
    )
    cors_origins: Annotated[tuple[str, ...], from_text(_parse_origins)] = Field(
        default=(),
        description="origins whose pages may use the public listener from a browser, such as `https://shop.example`, "
        "separated by spaces; `*` for all ([web](web.md#whose-pages-may-ask))",
    )


class TokenSettings(Settings):
    """Settings of upload tokens: whether reports need tokens, and the issuers' keys."""

    required: Annotated[bool, from_text(_parse_required), DefaultText("`off`")] = Field(
        default=False,
        validation_alias="PRIVATEER_UPLOAD_TOKENS",
        description="`required`: reports come with [upload tokens](tokens.md), but those of trusted senders",
    )
    keys: str = Field(
        default="",
        repr=False,  # an address may have a password in it
        validation_alias="PRIVATEER_TOKEN_KEYS",
        description="file or folder (`*.json`) of issuers' public keys, one issuer for an experiment; or an issuer's "
        "address",
    )
    origins: Annotated[tuple[str, ...], from_text(_parse_services), DefaultText("`127.0.0.1:` and the port")] = Field(
        default=(),
        validation_alias="PRIVATEER_TOKEN_ORIGIN",
        description="names by which devices know the service, separated by commas: host, and port unless it is 443",
    )

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.required and not self.keys:
            raise unset_error("PRIVATEER_TOKEN_KEYS", "the file or folder of the issuer's keys, or its address")
        return self

    def gate(self, is_spent: IsSpent = is_never_spent, clock: Clock | None = None) -> TokenGate | None:
        """Return the gate; None if no keys are configured."""
        return TokenGate(TokenKeys(self.keys), self.origins, is_spent, clock) if self.keys else None


class UploadSettings(ServiceSettings):
    """Settings of a service that receives reports of devices."""

    sender_keys: Paths = Field(
        default=(),
        description="files, or directories of `*.pub` files, with the public keys of trusted senders, who may upload "
        "several people's reports at once; separated by `:`",
    )
    body_budget: BodyBudget
    tokens: TokenSettings = Field(default_factory=TokenSettings)

    @field_validator("tokens")
    @classmethod
    def _set_default_origin(cls, tokens: TokenSettings, info: ValidationInfo) -> TokenSettings:
        """Set the tokens' origin to the local address and port if none is configured."""
        local_origins = (f"127.0.0.1:{info.data.get('port')}",)
        return tokens if tokens.origins else tokens.model_copy(update={"origins": local_origins})
