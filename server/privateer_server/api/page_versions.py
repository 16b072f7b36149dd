"""What the public pages show at a moment: two answers of a page with the same version are equal."""

from collections.abc import Hashable
from typing import Any, Final

from starlette.types import Scope

from privateer_core.errors import NotFound, Unavailable
from privateer_core.serving.page_cache import Version, common_version
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_server.experiment import Experiment
from privateer_server.experiments import Experiments

_OF_ONE: Final = frozenset({"policy", "state", "result", "history", "privacy", "risk"})
KEPT: Final = frozenset(
    {
        *("/openapi.json", "/keys", "/experiments", "/experiments/{name}", "/experiments/{name}/policy/{version}"),
        *(f"/experiments/{{name}}/{page}" for page in _OF_ONE),
    }
)
"""Pages of which bytes are kept for as long as they show the same."""
_DEEPEST: Final = 5
"""Parts of ``/experiments/NAME/policy/VERSION``, with the empty one before its first slash."""


class PageVersions:
    """Says what a request would show.

    Parameters
    ----------
    experiments
        What the pages are about.
    """

    def __init__(self, experiments: Experiments) -> None:
        self._experiments = experiments

    def __call__(self, scope: Scope) -> Version | None:
        """Return the version of a page; None: nothing is kept of it."""
        path: str = scope["path"]
        if path in ("/keys", "/experiments"):
            return Version(path, tuple(map(_standing, self._experiments)))
        parts = path.split("/")
        if parts[1] == "experiments" and 2 < len(parts) <= _DEEPEST:
            return self._of_one(scope, *parts[2:])
        return common_version(scope)

    def _of_one(self, scope: Scope, name: str, page: str = "", version: str = "") -> Version | None:
        if not (page == "policy" if version else page in _OF_ONE or not page):
            return None
        # A long poll waits, and of a publication itself nothing is made.
        if page == "policy" and (b"wait" in scope["query_string"] or _asks_for_bytes(scope)):
            return None
        try:
            experiment = self._experiments.get(name)
        except (NotFound, Unavailable):  # another server may have created it, or it stands still
            return None
        return Version(scope["path"], _standing(experiment))


def _standing(experiment: Experiment) -> Hashable:
    """Everything of an experiment that changes while it runs."""
    current = experiment.current
    return (
        *(current.digest, current.received, current.taken, current.given_up, current.plan.hold, current.plan.spec),
        *(experiment.name, experiment.before, experiment.shuffler, experiment.status),
        *(frozenset(experiment.refused.items()), current.drain and current.drain.until),
    )


def _asks_for_bytes(scope: Scope) -> bool:
    asked: dict[bytes, Any] = dict(scope["headers"])
    return MEDIA_TYPE.encode() in asked.get(b"accept", b"")
