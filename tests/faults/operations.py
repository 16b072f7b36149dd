"""Operations of a simulation, and how a list of them is run."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

from tests.faults.points import Death
from tests.faults.world import BATCHES, MIXED, PLAIN, SPECS, World, world

_SECONDS = 600
_DRAIN_SECONDS = 3600
"""Simulated time that an operation, and the end of a list, may take."""
_FILLS = 150
_LAST = 6


class Operation(Protocol):
    """Something that happens."""

    async def do(self, at: World) -> None: ...


@dataclass(frozen=True)
class Pass:
    """Time passes."""

    seconds: float = 0.0

    async def do(self, at: World) -> None:
        at.clock.skip(self.seconds)
        await asyncio.sleep(0)


@dataclass(frozen=True)
class Upload:
    """People report, each with a token, or all at once through a trusted sender; or their reports come later."""

    experiment: str
    people: int
    tokens: bool = False
    late: bool = False

    async def do(self, at: World) -> None:
        publication = await at.publication(self.experiment)
        if publication is None:
            return
        people = self.people * BATCHES[self.experiment] // 10
        bodies = [at.maker.body(publication, 1, at.token(self.experiment)) for _ in range(self.people * self.tokens)]
        if not self.tokens:
            bodies = [at.maker.body(publication, people)]
        new_bodies = [body for body in bodies if body]
        if self.late:
            at.late += new_bodies
        else:
            await asyncio.gather(*map(at.send, new_bodies))


@dataclass(frozen=True)
class Arrive:
    """What was on its way comes, in another order."""

    seed: int

    async def do(self, at: World) -> None:
        bodies, at.late = at.late, []
        Random(self.seed).shuffle(bodies)
        for body in bodies:
            await at.send(body)


@dataclass(frozen=True)
class Resend:
    """A recent body is sent again, a number of times at the same moment."""

    index: int
    times: int = 1

    async def do(self, at: World) -> None:
        if at.sent_bodies:
            last = at.sent_bodies[-_LAST:]
            body = last[self.index % len(last)]
            await asyncio.gather(*(at.send(body) for _ in range(self.times)))


@dataclass(frozen=True)
class Spend:
    """A participant spends a token again, for another report."""

    index: int

    async def do(self, at: World) -> None:
        tokens = [body for body in at.sent_bodies if body.token]
        if not tokens:
            return
        before = tokens[self.index % len(tokens)]
        publication = await at.publication(before.experiment)
        body = at.maker.body(publication, 1, before.token) if publication else None
        if body:
            await at.send(body)
            assert not (before.acknowledged and body.accepted and not at.observer.restores), "a token was spent twice"


@dataclass(frozen=True)
class Junk:
    """A trusted sender sends reports that cannot be decrypted, so that the server requests another batch."""

    tenths: int

    async def do(self, at: World) -> None:
        publication = await at.publication(MIXED)
        if publication:
            await at.send(at.maker.junk(publication, self.tenths * BATCHES[MIXED] // 10))


@dataclass(frozen=True)
class Lose:
    """The next answers are lost on their way: to people, or of batches to the shuffler."""

    target: str
    answers: int = 1

    async def do(self, at: World) -> None:
        if self.target == "batch":
            at.batch_losses += self.answers
        else:
            slot = at.shuffler if self.target == "shuffler" else at.servers[0]
            slot.n_lost_answers += self.answers


@dataclass(frozen=True)
class Crash:
    """A process will die before or after something that it writes."""

    role: str
    point: int
    after: bool
    skip: int = 0
    down: int = 0

    async def do(self, at: World) -> None:
        at.faults.deaths.append(Death(self.role, self.point, self.after, self.skip))
        for slot in at.slots:
            if slot.role == self.role:
                slot.down = self.down


@dataclass(frozen=True)
class Kill:
    """A process dies between two operations, or while people report."""

    index: int
    down: int = 0

    async def do(self, at: World) -> None:
        slot = at.slots[self.index % len(at.slots)]
        slot.kill()
        slot.down = self.down


@dataclass(frozen=True)
class Restart:
    """An operator stops a process and starts it again."""

    index: int

    async def do(self, at: World) -> None:
        await at.slots[self.index % len(at.slots)].stop()


@dataclass(frozen=True)
class Full:
    """So many writes find the disk full."""

    role: str
    writes: int

    async def do(self, at: World) -> None:
        at.faults.full[self.role] = self.writes


@dataclass(frozen=True)
class Stuck:
    """So many closings of rounds fail, as they do while the journal's disk is full or a learner has a defect."""

    closings: int

    async def do(self, at: World) -> None:
        at.faults.stuck = self.closings


@dataclass(frozen=True)
class Away:
    """The database goes, or comes back."""

    away: bool

    async def do(self, at: World) -> None:
        await (at.away() if self.away else at.back())


@dataclass(frozen=True)
class Step:
    """Somebody sets the clock."""

    seconds: float

    async def do(self, at: World) -> None:
        at.clock.step(self.seconds)


@dataclass(frozen=True)
class BackUp:
    """An operator takes a backup."""

    async def do(self, at: World) -> None:
        await at.back_up()


@dataclass(frozen=True)
class PutBack:
    """An operator puts it back, in one of several ways."""

    method_number: int

    async def do(self, at: World) -> None:
        await at.put_back(self.method_number)


@dataclass(frozen=True)
class Race:
    """Participants report at the same time, half of them twice and a third again later, while a process dies."""

    people: int
    kills: bool = False

    async def do(self, at: World) -> None:
        publications = {name: await at.publication(name) for name in SPECS}
        bodies = [
            body
            for name, publication in publications.items()
            if publication
            for _ in range(self.people)
            if (body := at.maker.body(publication, BATCHES[name] // 10))
        ]
        sends = [asyncio.create_task(at.send(body)) for body in [*bodies, *bodies[::2]]]
        await asyncio.sleep(0.002 * self.people)
        if self.kills:
            at.slots[self.people % len(at.slots)].kill()
        await asyncio.gather(*sends)
        for body in bodies[::3]:
            await at.send(body)


async def run(
    operations: Sequence[Operation], folder: Path, kind: Callable[..., World] = World, trace: list[str] | None = None
) -> dict[str, Any]:
    """Run operations in turn, wait until all reports are answered, and check the services' promises.

    Parameters
    ----------
    trace
        Gets all that happens, and when.

    Returns
    -------
    Figures of the run.
    """
    async with world(folder, kind) as at:
        at.trace = at.trace if trace is None else trace
        for operation in operations:
            async with asyncio.timeout(_SECONDS):
                at.note(repr(operation))
                await operation.do(at)
                await at.revive()
                await at.look()
        async with asyncio.timeout(_DRAIN_SECONDS):
            await drain(at)
        at.observer.check(at.sent_bodies, at.maker, BATCHES)
        return {
            "deaths": len(at.faults.happened),
            "rounds": len(at.observer.releases()),
            "reports": sum(release.received for release in at.observer.releases().values()),
            "lives": sum(slot._life for slot in at.slots),
        }


async def drain(at: World) -> None:
    """Let nothing go wrong any more; see that everything sent is answered, and every round with reports closes."""
    at.faults.clear()
    await at.back()
    at.batch_losses = 0
    for slot in at.slots:
        slot.n_lost_answers = slot.down = 0
    at.sent_bodies += [body for body in at.late if body not in at.sent_bodies]
    for body in list(at.sent_bodies):
        await at.settle(body)
    for name in SPECS:
        await _close(at, name)
    await at.look()


async def _close(at: World, name: str) -> None:
    """Fill the open round with people as long as somebody's acknowledged report waits in it."""
    for _ in range(_FILLS):
        publication = await at.publication(name)
        await at.wait()
        await at.look()
        if publication is None:
            continue
        releases = at.observer.releases()
        waiting = {body.version for body in at.sent_bodies if body.experiment == name and body.acknowledged}
        version = max(version for experiment, version in at.observer.published if experiment == name)
        if not any(each == version and (name, each) not in releases for each in waiting):
            return
        body = at.maker.body(publication, 1 if name == PLAIN else BATCHES[name] // 5)
        if body:
            await at.send(body)
    last = [f"{body.version} {body.answers[-1:]}" for body in at.sent_bodies[-3:]]
    raise AssertionError(f"the round of {name} does not close: {last}")
