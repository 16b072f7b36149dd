"""Reports that wait at the shuffler for an experiment, as its operator may know them: in tenths of a batch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from privateer_core.answer.people import People
from privateer_core.errors import PrivateerError
from privateer_core.privacy.trust import trust_of
from privateer_lab.services.rest import ask

_FIELD: Final = "--shuffler-admin-url"
_REMEDY: Final = f"Its operator can tell: {_FIELD} or PRIVATEER_SHUFFLER_ADMIN_URL names its private listener"


@dataclass(frozen=True)
class ShufflerProgress:
    """Sealed reports that a shuffler holds."""

    held: int | None  # people whose reports are held, in whole tenths of a batch; None: that is not known here
    batch: int  # people of a whole batch
    # the fewest people of a batch that the shuffler's operator takes; None: that is not known here
    min_batch: int | None = None
    full: bool = False  # whether a complete batch waits for the server
    unknown: str = ""  # why it is not known, and how it can be

    @property
    def _tenth(self) -> int:
        return max(1, self.batch // 10)

    def added_to(self, people: People) -> People:
        """Return a server's account of people with what waits here, as far as that is known."""
        return people if self.held is None else people.with_shuffler(self.held, self._tenth - 1)

    def document(self) -> dict[str, Any]:
        """Return it for machines."""
        return asdict(self)

    def words(self) -> str:
        """Return it for people."""
        if self.held is None:
            return f"at the shuffler: not known here, since {self.unknown}"
        least = f"; its operator takes batches of {self.min_batch:,} or more" if self.min_batch else ""
        if self.full:
            return f"at the shuffler: a complete batch waits for the server{least}"
        step = self._tenth
        counted = f"{self.held:,}" if step == 1 else f"{self.held:,} to {min(self.held + step, self.batch) - 1:,}"
        return f"at the shuffler: {counted} of {self.batch:,} sealed reports wait{least}"


def held_for(facts: Mapping[str, Any], url: str) -> ShufflerProgress | None:
    """Return what waits at the shuffler for an experiment; None if its reports need no shuffler, or nobody is asked.

    facts: what the server says of the experiment.
    url: the shuffler's private listener, as far as the command line knows it.
    """
    batch = facts.get("batch")
    if not batch or not trust_of(facts["model"]).shuffled:
        return None
    if facts["shuffler"] is None:  # it claims an experiment before it holds anything
        return ShufflerProgress(0, batch)
    try:
        status = ask("GET", f"{url}/held", field=_FIELD)
    except PrivateerError as error:
        return ShufflerProgress(None, batch, unknown=f"{error.detail}. {_REMEDY}")
    if status.get("shuffler") != facts["shuffler"]:
        return ShufflerProgress(
            None, batch, unknown=f"the shuffler at {url} is not the one that has claimed it. {_REMEDY}"
        )
    own = [one for one in status["rounds"] if one["experiment"] == facts["name"]]
    held = sum(one["held"] for one in own)
    return ShufflerProgress(held, batch, status["min_batch"], any(one["full"] for one in own))
