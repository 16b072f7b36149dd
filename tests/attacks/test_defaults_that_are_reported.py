"""An application shows the default, since the arm came too late: what did the device do behind its back?"""

import time
from pathlib import Path
from typing import Any

from privateer_client import Ledger, Outcome
from tests.support.experiments import CONTEXT, WEEK, Device, Server, waiting_spec
from tests.support.publications import published


class _Slow(Ledger):
    """A ledger on a disk that takes its time."""

    def change(self, *given: Any, **more: Any) -> Any:
        time.sleep(0.5)
        return super().change(*given, **more)


class _SlowDevice(Device):
    def ledger(self, **options: Any) -> Ledger:
        return _Slow(self.folder / "ledger.db", clock=self.clock, **options)


def test_no_report_is_made_of_an_arm_that_nobody_saw(tmp_path: Path) -> None:
    """The server is fast, and the choice itself takes longer than the page waits."""
    server = Server(published(waiting_spec()))
    device = _SlowDevice(tmp_path, server)
    client = device.start()
    shown = client.arm("test", CONTEXT, default="default", within=0.4)
    assert (shown.name, shown.report(1.0)) == ("default", Outcome.NOT_ASKED)
    time.sleep(1.0)
    device.clock.time += 1.1 * WEEK
    device.start().resend()
    assert (server.sent, device.ledger().payments()) == ([], [])
