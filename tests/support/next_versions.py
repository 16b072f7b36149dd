"""The version after this, with a further table: today's data is then that of an earlier version."""

from collections.abc import Iterator
from contextlib import contextmanager

from privateer_core.serving.store.database import Schema
from privateer_core.serving.store.sqlite import FileKind


@contextmanager
def next_versions(*kinds: FileKind | Schema) -> Iterator[None]:
    """Have services, and whoever looks at their data, be of the version after this one."""
    before = [(kind, kind.version, kind.steps) for kind in kinds]
    for kind, version, _ in before:
        _become(kind, version + 1, {version: "CREATE TABLE pets (id INTEGER)"})
    try:
        yield
    finally:
        for kind, version, steps in before:
            _become(kind, version, steps)


def _become(kind: FileKind | Schema, version: int, steps: object) -> None:
    object.__setattr__(kind, "version", version)  # what everybody imported is one object, which is frozen
    object.__setattr__(kind, "steps", steps)
