"""Plug-ins that installed distributions declare as entry points, by name."""

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, TypeVar, cast

from typing_extensions import override

from privateer_core.errors import PluginError

T = TypeVar("T")
_OWN_PREFIX: Final = "privateer_"
"""Prefix of the names of Privateer's own modules."""


class Plugins(Mapping[str, T]):
    """A mapping of the plug-ins of a group by name: Privateer's own first, in alphabetical order.

    Entry points are read at the first access, and a plug-in is imported when it is looked up.

    noun, field: the kind of plug-in, and the spec field that names it, for errors.
    """

    def __init__(self, group: str, noun: str, field: str) -> None:
        self.group, self._noun, self._field = group, noun, field
        self._load_cached = cache(self._load)

    @cached_property
    def _entry_points(self) -> dict[str, list[EntryPoint]]:
        """The entry points by plug-in name, in the order of `_sort_key`; several if two distributions have a name."""
        points_by_name: dict[str, list[EntryPoint]] = {}
        for point in sorted(entry_points(group=self.group), key=_sort_key):
            points_by_name.setdefault(point.name, []).append(point)
        return points_by_name

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._entry_points)

    @override
    def __len__(self) -> int:
        return len(self._entry_points)

    @override
    def __contains__(self, name: object) -> bool:
        return name in self._entry_points

    @override
    def __getitem__(self, name: str) -> T:
        """Return a plug-in."""
        return self._load_cached(name)

    def problems(self) -> list[PluginError]:
        """Import every plug-in, and return the errors of the plug-ins that cannot be used."""
        errors = []
        for name in self:
            try:
                self[name]
            except PluginError as error:
                errors.append(error)
        return errors

    def _load(self, name: str) -> T:
        """Import a plug-in; refuse a name that is unknown, declared twice, or cannot be imported."""
        points = self._entry_points.get(name, [])
        if not points:
            raise self._plugin_error(f"must be one of {', '.join(self)}", f"choose one, or install the {self._noun}")
        if len(points) > 1:
            owners = " and ".join(sorted(map(_distribution_name, points)))
            raise self._plugin_error(f"{owners} both bring {name!r}", "uninstall one of them")
        try:
            return cast(T, points[0].load())
        except Exception as error:  # whatever a stranger's module raises must stop nothing else
            reason = f"{type(error).__name__} in {points[0].value}"
            detail = f"{name!r} of {_distribution_name(points[0])} cannot be imported: {reason}"
            raise self._plugin_error(detail, f"mend or uninstall {_distribution_name(points[0])}") from error

    def _plugin_error(self, detail: str, remedy: str) -> PluginError:
        return PluginError(detail, field=self._field, remedy=remedy)


def _sort_key(point: EntryPoint) -> tuple[bool, str, str]:
    """Return a sort key that orders by package and name, with Privateer's own first; no metadata file is parsed."""
    package = point.value.partition(".")[0]
    return not package.startswith(_OWN_PREFIX), package, point.name


def _distribution_name(point: EntryPoint) -> str:
    """Return the name of the distribution that declares an entry point."""
    dist: Any = point.dist
    return str(dist.name) if dist else "an unnamed distribution"
