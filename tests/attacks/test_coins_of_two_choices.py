"""Somebody sees the arms of a person, and the coins of their report: no other choice may have been made by these coins.

Under `local` coins travel with the report. An arm by coins of its own says of a context what the policy says; an arm by
the coins of a report excludes every context for which these coins give another one.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from privateer_client import Outcome
from tests.support.experiments import CONTEXT, OTHER, WEEK, Device, Server
from tests.support.publications import OVER, draining, published
from tests.support.specs import make_spec

_ID = "http://s/test"
_SDK = Path(__file__).parents[2] / "sdk/js"
_TWO_PAGES = """
import { Client, MemoryLedger } from "SDK/src/node.js";
import { clockAt, serving } from "SDK/test/support/served.js";
import { vectors } from "SDK/test/support/vectors.js";

const publication = Buffer.from(vectors("publications")[0].publication, "hex");
await serving(publication, async (at) => {
  const client = new Client(at.url, { ledger: new MemoryLedger(), clock: clockAt(1_000_000), patience: 0 });
  at.asks = ASKED_FIRST;
  const one = await client.join("test");
  at.asks = "published";
  const other = await client.join("test");
  // The page that is asked reports; the other one shows an arm, before or after that.
  const [reports, shows] = IS_FIRST ? [one, other] : [other, one];
  if (!IS_FIRST) shows.choose({ x1: 0.9, x2: 0.1 });
  reports.choose({ x1: 0.3, x2: 0.9 });
  const told = reports.choice.slot;
  const outcome = await reports.report(1);
  if (IS_FIRST) shows.choose({ x1: 0.9, x2: 0.1 });
  console.log(JSON.stringify([outcome, told, shows.choice.slot]));
});
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")
@pytest.mark.parametrize(
    ("asked_first", "is_first"),
    [("published", "true"), ("nobody", "false")],
    ids=["a page that is still open after the report", "a page of a pause"],
)
def test_two_pages_never_choose_by_the_coins_of_one_report(asked_first: str, is_first: str) -> None:
    """Both had joined before the first of them chose. That coins are the same by chance has a probability of 2^-32."""
    script = _TWO_PAGES.replace("SDK", _SDK.as_uri()).replace("ASKED_FIRST", json.dumps(asked_first))
    script = script.replace("IS_FIRST", is_first)
    run = subprocess.run(
        ["node", "--input-type=module", "-e", script], capture_output=True, text=True, timeout=60, check=True
    )
    outcome, told, shown = json.loads(run.stdout)
    assert outcome == "accepted"
    assert told != shown


def test_an_arm_of_the_final_policy_has_other_coins_than_a_late_report(tmp_path: Path) -> None:
    """One session has joined while the round was open, the other one after the horizon; the latter chooses first."""
    spec = make_spec({"experiment.conversion_window": WEEK})
    server = Server(published(spec))
    device = Device(tmp_path, server)
    early = device.start().join("test")
    server.body = published(spec, version=2, drain=draining(spec, 2))
    late = device.start().join("test")
    late.choose(OTHER)
    shown = device.ledger().change_arm(_ID, lambda arm: arm)
    early.choose(CONTEXT)
    told = device.ledger().choice(_ID)
    assert shown is not None
    assert told is not None
    early.report(1.0)
    device.clock.time += 1.1 * WEEK
    assert device.start().resend() == {"test": Outcome.ACCEPTED}
    assert int(shown.coins[0]) != int(told.coins[0])


def test_a_report_after_a_new_horizon_has_other_coins_than_an_arm_of_the_old_one(tmp_path: Path) -> None:
    """A session that takes the experiment for over chooses again after another one has joined the new round."""
    over: dict[str, Any] = OVER
    server = Server(published(make_spec(), **over))
    device = Device(tmp_path, server)
    old = device.start().join("test")
    old.choose(CONTEXT)
    server.moves_on(make_spec(), 2)
    new = device.start().join("test")
    old.choose(OTHER)
    shown = device.ledger().change_arm(_ID, lambda arm: arm)
    new.choose(CONTEXT)
    told = device.ledger().choice(_ID)
    assert shown is not None
    assert told is not None
    assert new.report(1.0) is Outcome.ACCEPTED
    assert shown.coins.tolist() != told.coins.tolist()
