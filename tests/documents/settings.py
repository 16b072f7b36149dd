"""The table of the services' settings in docs/configuration.md, from the settings' own declarations."""

from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo

from privateer_core.serving.settings import DefaultText, Settings
from privateer_issuer.settings import IssuerSettings
from privateer_server.settings import ServerSettings
from privateer_shuffler.settings import ShufflerSettings

PAGE: Final = Path("docs/configuration.md")
SERVICES: Final[dict[str, type[Settings]]] = {
    "server": ServerSettings,
    "shuffler": ShufflerSettings,
    "issuer": IssuerSettings,
}
_HEAD: Final = "| variable | service | default | meaning |\n|---|---|---|---|\n"
_MIB: Final = 1 << 20


def documents() -> dict[Path, str]:
    """The text of the page with the table that the code makes."""
    before, head, rest = PAGE.read_text().partition(_HEAD)
    after = rest[rest.index("\n\n") :]
    return {PAGE: before + head + "\n".join(rows()) + after}


def rows() -> list[str]:
    """A row for each variable and meaning, with the services that have it."""
    defaults_by_variable: dict[tuple[str, str], dict[str, str]] = {}
    for service, settings in SERVICES.items():
        for name, field in settings.variables().items():
            defaults_by_variable.setdefault((name, field.description or ""), {})[service] = _default(field)
    return [
        f"| `{name}` | {_services(list(defaults))} | {_defaults(defaults)} | {meaning} |"
        for (name, meaning), defaults in defaults_by_variable.items()
    ]


def _services(named: list[str]) -> str:
    return "all" if named == list(SERVICES) else ", ".join(named)


def _defaults(by_service: dict[str, str]) -> str:
    if len(set(by_service.values())) == 1:
        return next(iter(by_service.values()))
    return ", ".join(f"{service} {default}" for service, default in by_service.items())


def _default(field: FieldInfo) -> str:
    defaults = [mark.default for mark in field.metadata if isinstance(mark, DefaultText)]
    if defaults:
        return defaults[0]
    return "required" if field.is_required() else _value(field.default)


def _value(default: Any) -> str:
    if isinstance(default, int):
        return f"{default // _MIB} MiB" if default and default % _MIB == 0 else str(default)
    return f"`{default}`" if default else ""
