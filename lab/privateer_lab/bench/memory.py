"""Whether the services' memory stays flat while report after report goes through both of them."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from privateer_core.wire.keys import own_key
from privateer_lab.bench.path import EXPERIMENTS, publication, report
from privateer_lab.bench.processor_time import memory_of
from privateer_lab.bench.sealed import bench_spec, seal_round
from privateer_lab.services.processes import Services, free_port, running
from privateer_lab.services.rest import create

LOOK: Final = 100_000
"""Reports between two looks."""
_BATCH: Final = 100
"""Reports an upload."""


def bench_memory(reports: int, look: int = LOOK) -> Iterator[dict[str, float]]:
    """Send shuffled reports, round after round, each sealed ahead; yield the memory of every process after every look.

    Parameters
    ----------
    reports
        In all; a whole number of looks is sent.
    look
        Reports between two looks: a round of each of a few experiments.

    Yields
    ------
    dict
        ``reports`` so far, and the MiB of each process that are in memory, such as ``server`` and ``server 1``, the
        first process that it started; this process, which seals and sends all of them, is the ``generator``.
    """
    each, looks = look // EXPERIMENTS, max(1, reports // look)
    names = [f"bench-{number}" for number in range(EXPERIMENTS)]
    with (
        tempfile.TemporaryDirectory(prefix="privateer-") as folder,
        running(Path(folder), free_port(), free_port(), quiet=True) as at,
    ):
        for name in names:
            create(at.admin, bench_spec(name, "shuffler", each, looks + 1), at.token)
        key = own_key(at.sender_key, "--data")
        for seen in range(1, looks + 1):
            rounds = [seal_round(publication(at.server, name), name, each, _BATCH, key) for name in names]
            report(at.server, at.shuffler, names, rounds, seen + 1)
            yield {"reports": seen * look} | _memory(at)


def _memory(at: Services) -> dict[str, float]:
    found = {"generator": memory_of(os.getpid())[0]}
    for name in ("shuffler", "server"):
        own, *children = memory_of(at.processes.pid(name))
        found |= {name: own} | {f"{name} {number}": size for number, size in enumerate(children, 1)}
    return found
