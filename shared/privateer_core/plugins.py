"""Plug-ins: what installed distributions declare as entry points, found by name."""

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar, cast

from typing_extensions import override

from privateer_core.errors import PluginError

T = TypeVar("T")
_OURS: Final = "privateer-"
"""What the names of our distributions begin with."""


class Plugins(Mapping[str, T]):
    """The plug-ins of a group by name, ours first, in alphabetical order; imported when somebody asks for one.

    Entry points are read when somebody asks first, and never at import.

    group: the group of entry points.
    noun, field: what one is, and the field that names it, for errors.
    """

    def __init__(self, group: str, noun: str, field: str) -> None:
        self.group, self._noun, self._field = group, noun, field
        self._loaded = cache(self._load)

    @cached_property
    def _found(self) -> dict[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for point in sorted(entry_points(group=self.group), key=_place):
            found.setdefault(point.name, []).append(point)
        return found

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    @override
    def __len__(self) -> int:
        return len(self._found)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._found

    @override
    def __getitem__(self, name: str) -> T:
        """Return a plug-in."""
        return self._loaded(name)

    def problems(self) -> list[PluginError]:
        """Import every plug-in; return what is wrong with those that cannot be used."""
        found = []
        for name in self:
            try:
                self[name]
            except PluginError as error:
                found.append(error)
        return found

    def _load(self, name: str) -> T:
        points = self._found.get(name, [])
        if not points:
            raise self._wrong(f"must be one of {', '.join(self)}", f"choose one, or install the {self._noun}")
        if len(points) > 1:
            both = " and ".join(sorted(map(_owner, points)))
            raise self._wrong(f"{both} both bring {name!r}", "uninstall one of them")
        try:
            return cast(T, points[0].load())
        except Exception as error:  # whatever a stranger's module raises must stop nothing else
            reason = f"{type(error).__name__} in {points[0].value}"
            detail = f"{name!r} of {_owner(points[0])} cannot be imported: {reason}"
            raise self._wrong(detail, f"mend or uninstall {_owner(points[0])}") from error

    def _wrong(self, detail: str, remedy: str) -> PluginError:
        return PluginError(detail, field=self._field, remedy=remedy)


def _place(point: EntryPoint) -> tuple[bool, str, str]:
    """Return a key that puts our distributions before others, and each after the other."""
    owner = _owner(point)
    return not owner.startswith(_OURS), owner, point.name


def _owner(point: EntryPoint) -> str:
    """Return the name of the distribution that declares an entry point."""
    dist: Any = point.dist
    return str(dist.name) if dist else "an unnamed distribution"
