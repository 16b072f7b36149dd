"""Measures decisions on a device by an additive policy with many features, in Python and in JavaScript."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_client.inputs import context_vector
from privateer_client.participation import Participation
from privateer_core.algorithms import parse_spec
from privateer_core.codec import encode
from privateer_core.errors import SpecError
from privateer_core.policies.decisions import message_size
from privateer_core.privacy.terms_verification import Limits
from privateer_core.privacy.trust import stands_alone
from privateer_core.wire.publication import Publication, Round, encode_publication
from privateer_lab.services.demo import sdk_folder
from privateer_server.rounds.loop import Schedule

FEATURES: Final = 60
ARMS: Final = 5
_TIMES: Final = 500
_TRIES: Final = 5
_SEALED: Final = 64
_NAME: Final = "bench"
_LIMITS: Final[dict[str, Any]] = {"epsilon": 4.0, "local_epsilon": 20.0}
_SCRIPT: Final = """
const { sdk, publication, context, limits, times, tries } = JSON.parse(require("fs").readFileSync(0, "utf8"));
const parts = ["participation", "verification"].map((name) => import(`${sdk}/${name}.js`));
Promise.all(parts).then(async ([{ Participation }, { LIMITS }]) => {
  const body = new Uint8Array(Buffer.from(publication, "base64"));
  const followed = await Participation.checked(body, "bench", { ...LIMITS, ...limits });
  const { columns } = followed.choose(context, 1);
  const timed = (work) => {
    const all = Array.from({ length: tries }, () => {
      const started = process.cpuUsage();
      for (let slot = 0; slot < times; slot++) work(slot);
      const { user, system } = process.cpuUsage(started);
      return (user + system) / times;
    });
    return Math.min(...all);
  };
  const decide = timed((slot) => followed.decider.decide(columns, slot));
  console.log(JSON.stringify({ decide, choose: timed((slot) => followed.choose(context, slot)) }));
});
"""


def bench_decisions() -> dict[str, float]:
    """Measure how long a device takes to decide, by 60 features and for five arms; the best of a few tries.

    Returns
    -------
    dict
        Microseconds. ``decide`` begins with encoded features, ``choose`` with what an application has. JavaScript is
        missing where Node or the SDK is.
    """
    body, context = _publication()
    found = {f"python, {name}": microseconds for name, microseconds in _in_python(body, context).items()}
    return found | {f"javascript, {name}": microseconds for name, microseconds in _in_javascript(body, context).items()}


def _publication() -> tuple[bytes, dict[str, Any]]:
    """Return the publication of a round whose policy has learned something, and a person's features."""
    numbers: dict[str, Any] = {f"x{place}": {"low": 0, "high": 1} for place in range(FEATURES - 20)}
    levels = {f"l{place}": {"levels": ["a", "b", "c", "d", "e", "f"]} for place in range(20)}
    spec = parse_spec(
        {
            "experiment": {"name": _NAME, "arms": [f"arm {arm}" for arm in range(ARMS)], "horizon": 10_000},
            "context": {"features": numbers | levels},
            "privacy": {"model": stands_alone().name, "epsilon": 4.0},
            "algorithm": {"name": "additive", "bins": 8},
        }
    )
    policy: Any = Schedule(spec).open(0).policy
    drawn = np.random.default_rng(0).integers(-800, 800, policy.draws.shape).astype(np.int16)
    policy = replace(policy, draws=drawn, means=drawn[0])
    key = X25519PrivateKey.generate().public_key().public_bytes_raw()
    facts = Round(_NAME, policy.version, spec.privacy.model, policy.terms.batch, _SEALED + message_size(policy), key)
    body = encode_publication(Publication(facts, spec.model_dump_json().encode(), encode(policy)))
    return body, dict.fromkeys(numbers, 0.37) | dict.fromkeys(levels, "d")


def _in_python(body: bytes, context: dict[str, Any]) -> dict[str, float]:
    followed = Participation(body, _NAME, Limits(**_LIMITS))
    columns, coins = context_vector(context, followed.spec.features), np.array([7], np.uint32)

    def choose() -> None:
        followed.decide(context_vector(context, followed.spec.features), coins)

    return {"decide": _timed(lambda: followed.decide(columns, coins)), "choose": _timed(choose)}


def _timed(work: Callable[[], object]) -> float:
    """Return the microseconds of one call."""

    def once() -> float:
        started = time.process_time()
        for _ in range(_TIMES):
            work()
        return (time.process_time() - started) / _TIMES * 1e6

    return min(once() for _ in range(_TRIES))


def _in_javascript(body: bytes, context: dict[str, Any]) -> dict[str, float]:
    try:
        sdk, node = sdk_folder(), shutil.which("node")
    except SpecError:
        return {}
    if node is None:
        return {}
    told = {
        "sdk": sdk.as_uri(),
        "publication": base64.b64encode(body).decode(),
        "context": context,
        "limits": _LIMITS,
        "times": _TIMES,
        "tries": _TRIES,
    }
    done = subprocess.run([node, "-e", _SCRIPT], input=json.dumps(told), capture_output=True, text=True, check=False)
    if done.returncode:
        return {}
    found: dict[str, float] = json.loads(done.stdout)
    return found
