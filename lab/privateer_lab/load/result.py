"""The outcome of a load run."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec

from privateer_core.answer.people import People
from privateer_lab.simulation.scores import Score


@dataclass
class LoadResult(Score):
    """The outcome of a load run."""

    # people, not_asked: people who chose, and those of them whom nobody asked for a report, since no round was open
    people: int = 0
    not_asked: int = 0
    # accepted, refused: the reports that ``endpoint`` accepted, and the others by reason
    accepted: int = 0
    endpoint: str = "server"  # who took the reports: ``server`` or ``shuffler``, which holds them until a batch is full
    # what had become of each of the experiment's people at the end of the run, as far as the server sees and this run
    # knows; None: the server did not say
    account: People | None = None
    refused: Counter[str] = field(default_factory=Counter)
    # versions, rounds: policies that people followed, and those that asked for reports
    versions: int = 0
    rounds: int = 0
    over: bool = False  # whether the experiment has come to its end
    facts: dict[str, float] = field(default_factory=dict)  # what only the truth says of the last policy
    # bytes_sent, messages_sent: the bodies of all uploads, and the sealed messages in them
    bytes_sent: int = 0
    messages_sent: int = 0
    # waits, waited: how often a service said with ``Retry-After`` when to come again, and the seconds that people
    # waited then
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
