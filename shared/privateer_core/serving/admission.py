"""Compares the rounds of an experiment with the limits of the services that carry them: one rule for all who ask.

The server asks before it creates an experiment, the shuffler before it takes reports for a round, and the command line
before anything is started. Services publish their limits at ``/limits``.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from privateer_core.errors import SpecError

_HEADER_BYTES: Final = 1024
"""More than the header of an upload or a batch takes."""
_BUDGET: Final = "PRIVATEER_BODY_BUDGET"


class ServerLimits(msgspec.Struct, frozen=True):
    """The bytes that a server takes, of an upload, a batch and all bodies together; by default as it is shipped."""

    report_bytes_max: int = 4 << 20
    batch_bytes_max: int = 256 << 20
    body_budget: int = 256 << 20


class ShufflerLimits(msgspec.Struct, frozen=True):
    """The people, bytes and messages that a shuffler takes; by default as it is shipped.

    ``min_batch`` is the fewest people of a batch, ``body_limit`` the bytes of an upload, ``body_budget`` those of all
    uploads together. ``batch_bytes_max`` and ``messages_max`` are of a batch, which is held in memory when it leaves.
    """

    min_batch: int = 100
    body_limit: int = 8 << 20
    body_budget: int = 64 << 20
    batch_bytes_max: int = 1 << 30
    messages_max: int = 1 << 24


class RoundSize(NamedTuple):
    """The size of a round: its people, the sealed messages of each, and the bytes of one."""

    people: int
    messages: int
    sealed_size: int

    @property
    def upload_bytes(self) -> int:
        """Bytes that one person sends."""
        return self.messages * self.sealed_size + _HEADER_BYTES

    @property
    def batch_bytes(self) -> int:
        """Bytes of all people's messages."""
        return self.people * self.messages * self.sealed_size + _HEADER_BYTES

    @property
    def batch_messages(self) -> int:
        """Messages of all people."""
        return self.people * self.messages


class ExperimentSize(NamedTuple):
    """The size of an experiment at its most, whatever its seed and its people turn out to be.

    Attributes
    ----------
    fewest
        Fewest people with whom a round may close.
    rounds
        The largest rounds.
    is_shuffled
        Whether reports go through a shuffler.
    growth
        The key of the spec that makes rounds large, and words for what else does.
    """

    fewest: int
    rounds: Sequence[RoundSize]
    is_shuffled: bool
    growth: tuple[str, str] = ("experiment.round_size", "experiment.round_growth")


def find_refusals(
    size: ExperimentSize, server: ServerLimits | None = None, shuffler: ShufflerLimits | None = None
) -> list[SpecError]:
    """Return why services would refuse an experiment: each refusal names the spec's field, the limit and the remedy.

    Parameters
    ----------
    size
        The experiment.
    server, shuffler
        Limits of the services; None: another one asks for that service.
    """
    refusals = list[SpecError]()
    if server and size.is_shuffled:
        refusals += _check_batch(size, server)
    elif server:
        limits = server.report_bytes_max, server.body_budget
        refusals += _check_upload(size, "server", "PRIVATEER_REPORT_BYTES_MAX", *limits)
    if shuffler and size.is_shuffled:
        refusals += _check_people(size, shuffler)
        refusals += _check_upload(size, "shuffler", "PRIVATEER_BODY_LIMIT", shuffler.body_limit, shuffler.body_budget)
        refusals += _check_memory(size, shuffler)
    return refusals


def refuse(refusals: Sequence[SpecError], note: str = "") -> None:
    """Raise all refusals as one error, if there are any.

    Parameters
    ----------
    note
        What else to say, such as whose limits these are.

    Raises
    ------
    SpecError
        With the field of the first refusal, and all others in its words.
    """
    if not refusals:
        return
    first, last = refusals[0], refusals[-1]
    before = f"{first.detail} ({first.remedy})" if len(refusals) > 1 else ""
    between = [str(refusal) for refusal in refusals[1:-1]]
    detail = "; ".join(filter(None, [before, *between, f"{last.field}: {last.detail}" if before else first.detail]))
    raise SpecError(detail, field=first.field, remedy="; ".join(filter(None, [last.remedy, note])))


def _check_people(size: ExperimentSize, limits: ShufflerLimits) -> Iterator[SpecError]:
    if size.fewest < limits.min_batch:
        yield SpecError(
            f"a round may close at {size.fewest:,} reports, and the shuffler releases no fewer than "
            f"PRIVATEER_MIN_BATCH={limits.min_batch} at once",
            field="privacy.min_batch",
            remedy=f"raise it to {limits.min_batch}, and the first round to as many people, or set "
            f"PRIVATEER_MIN_BATCH={size.fewest} at the shuffler",
        )


def _check_upload(size: ExperimentSize, service: str, setting: str, most: int, budget: int) -> Iterator[SpecError]:
    largest = max(round_.upload_bytes for round_ in size.rounds)
    if largest > most:
        yield SpecError(
            f"a person sends up to {largest:,} bytes, and the {service} takes {setting}={most} at once",
            field="privacy.epsilon",
            remedy="raise it, have more people share the noise of a round, or "
            + _raise_setting(setting, largest, budget, service),
        )


def _check_batch(size: ExperimentSize, limits: ServerLimits) -> Iterator[SpecError]:
    largest = max(size.rounds, key=lambda round_: round_.batch_bytes)
    field, others = size.growth
    if largest.batch_bytes > limits.batch_bytes_max:
        setting = "PRIVATEER_BATCH_BYTES_MAX"
        raised = _raise_setting(setting, largest.batch_bytes, limits.body_budget, "server")
        yield SpecError(
            f"a round of {largest.people:,} people comes to {largest.batch_bytes:,} bytes, and the server takes "
            f"{setting}={limits.batch_bytes_max} at once",
            field=field,
            remedy=f"lower it, or {others}, or {raised}",
        )


def _check_memory(size: ExperimentSize, limits: ShufflerLimits) -> Iterator[SpecError]:
    field, others = size.growth
    counts = (
        (max(round_.batch_messages for round_ in size.rounds), limits.messages_max, "messages"),
        (max(round_.batch_bytes for round_ in size.rounds), limits.batch_bytes_max, "bytes"),
    )
    for count, most, unit in counts:
        if count > most:
            yield SpecError(
                f"a round comes to {count:,} {unit}, and a shuffler holds {most:,} at most, whatever its settings",
                field=field,
                remedy=f"lower it, or {others}",
            )


def _raise_setting(setting: str, value: int, budget: int, service: str) -> str:
    needed = f" and {_BUDGET}={value}" if value > budget else ""
    return f"set {setting}={value}{needed} at the {service}"
