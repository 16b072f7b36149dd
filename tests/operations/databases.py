"""PostgreSQL as it goes away, comes back, and answers nobody."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.support.postgres import Cluster


def stop(cluster: Cluster) -> None:
    """Stop it, as somebody does who does not wait for sessions."""
    cluster.run("pg_ctl", "-D", str(cluster.folder / "data"), "-w", "-m", "fast", "stop")


def start(cluster: Cluster) -> None:
    """Start it with the options that it had."""
    options = (cluster.folder / "data" / "postmaster.opts").read_text().strip().partition(" ")[2]
    data, log = str(cluster.folder / "data"), str(cluster.folder / "log")
    cluster.run("pg_ctl", "-D", data, "-w", "-l", log, "-o", options.replace('"', "'"), "start")


def pause(cluster: Cluster) -> None:
    """Have no process of it run."""
    _send(cluster, signal.SIGSTOP)


def resume(cluster: Cluster) -> None:
    """Let them go on."""
    _send(cluster, signal.SIGCONT)


def _send(cluster: Cluster, number: signal.Signals) -> None:
    postmaster = int((cluster.folder / "data" / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for process in (postmaster, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(process, number)
