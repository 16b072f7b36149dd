"""The outcome of a load run."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from privateer_core.answer.people import People
from privateer_lab.simulation.scores import Score


@dataclass
class LoadResult(Score):
    """The outcome of a load run.

    Attributes
    ----------
    people, not_asked
        People who chose, and those of them whom nobody asked for a report, since no round was open.
    accepted, refused
        The reports that ``endpoint`` accepted, and the others by reason.
    endpoint
        Who took the reports: ``server`` or ``shuffler``, which holds them until a batch is full.
    account
        What had become of each of the experiment's people at the end of the run, as far as the server sees and this run
        knows; None: the server did not say.
    versions, rounds
        Policies that people followed, and those that asked for reports.
    over
        Whether the experiment has come to its end.
    facts
        What only the truth says of the last policy.
    bytes_sent, messages_sent
        The bodies of all uploads, and the sealed messages in them.
    waits, waited
        How often a service said with ``Retry-After`` when to come again, and the seconds that people waited then.
    """

    people: int = 0
    not_asked: int = 0
    accepted: int = 0
    endpoint: str = "server"
    account: People | None = None
    refused: Counter[str] = field(default_factory=Counter)
    versions: int = 0
    rounds: int = 0
    over: bool = False
    facts: dict[str, float] = field(default_factory=dict)
    bytes_sent: int = 0
    messages_sent: int = 0
    waits: int = 0
    waited: float = 0.0
    seconds: float = 0.0

    @property
    def people_per_second(self) -> float:
        """Rate over the whole run."""
        return self.people / self.seconds if self.seconds else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return all figures for ``--json``."""
        figures = {name: value for name, value in vars(self).items() if name not in ("played", "facts", "account")}
        took_part = figures.pop("people") - self.not_asked
        figures |= {"took_part": took_part, "people": msgspec.to_builtins(self.account)}
        rates = ("regret", "uniform_regret", "best_constant_regret", "people_per_second")
        mean = self.reward / max(1, self.played.times)
        return (
            figures
            | self.facts
            | {"refused": dict(self.refused), "reward_mean": mean}
            | {name: getattr(self, name) for name in rates}
        )
