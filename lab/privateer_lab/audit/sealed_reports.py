"""Attacks along the wire: from the client library's sealed reports to what the server holds after opening."""

import asyncio
import math
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_client.participation import Participation
from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.policies.decisions import Arms, by_age
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.terms_verification import Limits
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.arms import ArmsSpec
from privateer_core.spec.spec import Spec
from privateer_core.wire.envelope import binding, decode_envelope, header_of, split_sealed
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.views import batches as batch_view
from privateer_lab.audit.views import log_likelihood, model_of
from privateer_lab.audit.views import reports as report_view
from privateer_server.intake.opening import REPORT_ID_SIZE, Opener
from privateer_server.rounds.open_round import OpenRound, first_round
from privateer_shuffler.pool.placed_round import PlacedRound
from privateer_shuffler.pool.pool import Pool
from privateer_shuffler.pool.round import Label
from privateer_shuffler.pool.round_file import RoundStore

LIMITS = Limits(math.inf, 0.1, math.inf, honest_fraction=1.0, min_batch=100, arms="hidden", curator=True)
ALONE, BATCHED = model_of(report_view), model_of(batch_view)
"""The trust models whose reports are attacked one by one, and in batches."""
_EPSILON, _DELTA = 1.0, 0.01
_BATCH = 100
_BATCHES_AT_ONCE = 20
_CONTEXT = 0.3
_REWARDS = (1.0, 0.0)
"""The two neighbours' rewards, in the same bin: the worst pair of a signed symbol."""


def audit_spec(model: str, arms: str = "seen") -> Spec:
    """Return the experiment that is attacked: the first that chooses an arm by context, and asks for keyed means."""
    kinds = [algorithm(name).spec for name in ALGORITHMS]
    arms_by_key = [kind for kind in kinds if issubclass(kind, ArmsSpec) and kind.question is KeyedMeans]
    firsts = (next(iter(kind.instances().values())) for kind in arms_by_key)
    data = next(first for first in firsts if first.dimension).model_dump(mode="json", exclude_none=True)
    data["experiment"] |= {"name": "audit", "arms": ["a", "b"], "horizon": 100_000, "round_size": _BATCH}
    data["context"] = {"features": {"x": {"low": 0.0, "high": 1.0}}}
    data["privacy"] = {"model": model, "arms": arms, **TRUST[model].example}
    if TRUST[model].promises:
        data["privacy"]["epsilon"] = _EPSILON
    if TRUST[model].batched:
        data["privacy"] |= {"delta": _DELTA, "min_batch": _BATCH, "honest_fraction": 1.0}
    return parse_spec(data)


@cache
def opened(model: str, arms: str = "seen") -> tuple[OpenRound, Opener]:
    """Open a first round; return it with the server's key to it."""
    opener = Opener(X25519PrivateKey.generate())
    return first_round(audit_spec(model, arms), opener.public_key), opener


def _shuffled_round() -> tuple[OpenRound, Opener]:
    """Open a round of two symbols, of which the few batches that the wire allows prove most."""
    return opened(BATCHED, "hidden")


def wire_cases(samples: int) -> list[Case]:
    """Return attacks on sealed reports, one by one and in batches."""
    first, sums = _statistics()
    count = max(160, samples // 500)
    return [
        _case("sealed reports", opened(ALONE)[0], _reports, samples // 20),
        _case("first place of a batch", _shuffled_round()[0], first, count),
        _case("agreements in a batch", _shuffled_round()[0], sums, count),
    ]


def _case(name: str, current: OpenRound, sample: Sampler, count: int) -> Case:
    terms = current.step.policy.terms
    assert terms.event is not None
    kind, claim = type(terms.mechanism).__name__, (terms.epsilon, terms.delta)
    return Case(name, kind, terms.model, terms.calibration, *claim, terms.event, sample, count)


def _sealed(current: OpenRound, rewards: Scores) -> list[bytes]:
    """Seal the reports of people who all are seen to play the first arm."""
    participation = Participation(current.publication, "audit", LIMITS)
    coins, arms = participation.coins(len(rewards)), Arms(np.zeros(len(rewards), np.int64))
    return participation.reports(np.full((len(rewards), 1), _CONTEXT), coins, arms, rewards)


def _held(current: OpenRound, opener: Opener, sealed: list[bytes]) -> Scores:
    """Score what the server makes of sealed reports, one by one."""
    header = header_of(current.round, current.digest)
    plain = opener.open(sealed, binding(header, current.round.model))
    policy, mechanism = current.step.policy, current.mechanism
    contents = [report[REPORT_ID_SIZE:] for report in plain]
    reports = mechanism.parse(by_age(contents)[0] if policy.tells_age else b"".join(contents))
    contexts, arms = np.full((len(reports), 1), _CONTEXT), Arms(np.zeros(len(reports), np.int64))
    left, right = (
        log_likelihood(
            mechanism, policy.contribute(contexts, reports["slot"], arms, np.full(len(reports), reward)), reports
        )
        for reward in _REWARDS
    )
    return np.asarray(np.round(left - right, 6))


def _reports(who: int, count: int) -> Scores:
    current, opener = opened(ALONE)
    return _held(current, opener, _sealed(current, np.full(count, _REWARDS[who])))


def _statistics() -> tuple[Sampler, Sampler]:
    """Return two statistics of the same batches, which are sealed once; bounds may depend on each other."""
    batches = cache(_batches)

    def first(who: int, count: int) -> Scores:
        return np.asarray(batches(who, count)[:, 0])

    def sums(who: int, count: int) -> Scores:
        return np.asarray(batches(who, count)[:, 1])

    return first, sums


def _batches(who: int, count: int) -> Scores:
    """Send whole batches through the shuffler's pool; score the first place, and all, (count, 2).

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
            scores.append((float(seen[0]), round(float(seen.sum()), 6)))
    return np.array(scores)


async def _all_shuffled(current: OpenRound, batches: list[list[bytes]]) -> list[list[bytes]]:
    """Shuffle batches side by side, each through a pool of its own, since a pool mostly waits for the disk."""
    return await asyncio.gather(*(_shuffled(current, sealed) for sealed in batches))


async def _shuffled(current: OpenRound, sealed: list[bytes]) -> list[bytes]:
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        label = Label(current.round, current.digest)
        pool = Pool(PlacedRound(await asyncio.to_thread(RoundStore.create, Path(folder), label)))
        await pool.hold(sealed)
        batch = await pool.batch()
        await pool.forget()
    return split_sealed(decode_envelope(batch), current.round)
