"""Attacks along the wire: from the client library's sealed reports to what the server holds after opening."""

import asyncio
import math
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer.accounting.events import Pure, ShuffledResponse
from privateer.algorithms.partition import PartitionPolicy
from privateer.coins import bucket, sign
from privateer.experiment import Spec, parse_spec
from privateer.mechanisms.signed_symbol import SignedSymbol
from privateer.verification import Limits
from privateer.wire.envelope import binding, decode_envelope, header_of, split_sealed
from privateer_client.participation import Participation
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.evidence import Scores
from privateer_server.opening import REPORT_ID_SIZE, Opener
from privateer_server.rounds import OpenRound, first_round
from privateer_shuffler.pool import Pool
from privateer_shuffler.store import Label, RoundStore

LIMITS = Limits(math.inf, 0.1, math.inf, honest_fraction=1.0, min_batch=100, arms="hidden", curator=True)
MODELS: dict[str, dict[str, object]] = {
    "local": {"epsilon": 1.0},
    "shuffle": {"epsilon": 1.0, "delta": 0.01, "min_batch": 100, "honest_fraction": 1.0},
    "central": {"epsilon": 1.0, "delta": 1e-6},
    "none": {},
}
"""What an experiment that is attacked promises, by trust model."""
_BATCH = 100
_BATCHES_AT_ONCE = 20
_REWARDS = (1.0, 0.0)
"""The two neighbours' rewards, in the same bin: the worst pair of a signed symbol."""


def audit_spec(model: str, arms: str = "seen") -> Spec:
    """The experiment that is attacked."""
    return parse_spec(
        {
            "experiment": {"name": "audit", "arms": ["a", "b"], "horizon": 100_000, "round_size": _BATCH},
            "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
            "privacy": {"model": model, "arms": arms, **MODELS[model]},
            "algorithm": {"name": "partition"},
        }
    )


@cache
def opened(model: str, arms: str = "seen") -> tuple[OpenRound, Opener]:
    """A first round, and the server's key to it."""
    opener = Opener(X25519PrivateKey.generate())
    return first_round(audit_spec(model, arms), opener.public_key), opener


def _shuffled_round() -> tuple[OpenRound, Opener]:
    """One of two symbols, of which the few batches that the wire allows prove most; `seen` attacks arms in the key."""
    return opened("shuffle", "hidden")


def wire_cases(samples: int) -> list[Case]:
    """Both trust models of sealed reports."""
    local, shuffle = (current.policy.terms for current, _ in (opened("local"), _shuffled_round()))
    batches = max(160, samples // 500)
    event = ShuffledResponse(shuffle.local_epsilon, shuffle.symbols, shuffle.honest)
    pure, kind = Pure(local.local_epsilon), "SignedSymbol"
    first, sums = _statistics()
    return [
        Case("sealed reports", kind, "local", "tight", 1.0, 0.0, pure, _reports, samples // 20),
        Case("first place of a batch", kind, "shuffle", "tight", 1.0, 0.01, event, first, batches),
        Case("agreements in a batch", kind, "shuffle", "tight", 1.0, 0.01, event, sums, batches),
    ]


def _sealed(current: OpenRound, rewards: Scores) -> list[bytes]:
    """Everybody is seen to play the first arm."""
    participation = Participation(current.publication, "audit", LIMITS)
    slots, arms = participation.slots(len(rewards)), np.zeros(len(rewards), np.int64)
    return participation.reports(np.full((len(rewards), 1), 0.3), slots, arms, rewards)


def _agreement(policy: PartitionPolicy, mechanism: SignedSymbol, rows: bytes) -> Scores:
    """1 where a report's symbol is that of a reward of 1, -1 where that of a reward of 0, else 0."""
    reports = mechanism.parse(rows)
    hashes = policy.reported.hashes(reports["slot"], np.zeros(len(reports), np.int64))
    symbols = reports["symbol"].astype(np.int64)
    hit = bucket(hashes, mechanism.buckets) == symbols >> 1
    return np.where(hit, sign(hashes) * (2 * (symbols & 1) - 1), 0).astype(float)


def _held(current: OpenRound, opener: Opener, sealed: list[bytes]) -> Scores:
    """What the server makes of sealed reports, one by one."""
    header = header_of(current.round, current.digest)
    plain = opener.open(sealed, binding(header, current.round.model))
    rows = b"".join(report[REPORT_ID_SIZE:] for report in plain)
    return _agreement(current.policy, current.mechanism, rows)


def _reports(who: int, count: int) -> Scores:
    current, opener = opened("local")
    return _held(current, opener, _sealed(current, np.full(count, _REWARDS[who])))


def _statistics() -> tuple[Sampler, Sampler]:
    """Two statistics of the same batches, which are sealed once; bounds may depend on each other."""
    batches = cache(_batches)

    def first(who: int, count: int) -> Scores:
        return np.asarray(batches(who, count)[:, 0])

    def sums(who: int, count: int) -> Scores:
        return np.asarray(batches(who, count)[:, 1])

    return first, sums


def _batches(who: int, count: int) -> Scores:
    """Whole batches through the shuffler's pool: what stands in the first place, and agreements in all, (count, 2).

    The person in question arrives first; the others' rewards are half and half.
    """
    current, opener = _shuffled_round()
    rewards = (np.arange(_BATCH) % 2).astype(float)
    rewards[0] = _REWARDS[who]
    scores: list[tuple[float, float]] = []
    while len(scores) < count:
        sealed = [_sealed(current, rewards) for _ in range(min(_BATCHES_AT_ONCE, count - len(scores)))]
        for permuted in asyncio.run(_all_shuffled(current, sealed)):
            seen = _held(current, opener, permuted)
            scores.append((float(seen[0]), float(seen.sum())))
    return np.array(scores)


async def _all_shuffled(current: OpenRound, batches: list[list[bytes]]) -> list[list[bytes]]:
    """Side by side, each through a pool of its own, since a pool mostly waits for the disk."""
    return await asyncio.gather(*(_shuffled(current, sealed) for sealed in batches))


async def _shuffled(current: OpenRound, sealed: list[bytes]) -> list[bytes]:
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        label = Label(current.round, current.digest)
        pool = Pool(await asyncio.to_thread(RoundStore.create, Path(folder), label))
        await pool.hold(sealed)
        batch = await pool.batch()
        await pool.forget()
    return split_sealed(decode_envelope(batch), current.round)
