"""Random specs of every algorithm and trust model that a server takes, the same for the same seed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any
from zlib import crc32

import numpy as np

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.privacy.record import make_record
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import MESSAGES_MAX
from privateer_server.rounds.schedule import Schedule
from tests.contract.subjects import specs
from tests.support.specs import NUMBER

Draw = Callable[[np.random.Generator], Any]
_FEATURES: tuple[Any, ...] = (NUMBER, {**NUMBER, "missing": True}, {"low": 0.0, "high": 24.0, "cyclic": True})
_FEATURES += ({"levels": [0, 1]}, {"levels": ["one", "two", "three"]})


def _between(low: float, high: float) -> Draw:
    return lambda rng: float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.4g}")


def _whole(low: float, high: float) -> Draw:
    return lambda rng: round(_between(low, high)(rng))


def _one(*values: Any) -> Draw:
    return lambda rng: values[rng.integers(len(values))]


_CHANGES: Mapping[str, Draw] = {
    "experiment.horizon": _whole(1000, 40_000),
    "experiment.round_size": _whole(100, 4000),
    "experiment.participants": _whole(2000, 1e6),
    "experiment.min_round_fraction": _one(0.0, 0.3, 1.0),
    "experiment.arms": lambda rng: [f"arm {index}" for index in range(rng.integers(2, 7))],
    "experiment.reports_per_person": _one(1, 2, 7),
    "context.features": lambda rng: {f"x{index}": _one(*_FEATURES)(rng) for index in range(1, rng.integers(2, 9))},
    "segments": _one({}, {"features": ["x1"], "bins": 2}, {"features": ["x1"], "bins": 8}),
    "reward.kind": _one("binary", "numeric"),
    "reward.base_rate": _between(0.001, 0.5),
    "privacy.epsilon": _between(0.2, 8),
    "privacy.delta": _between(1e-9, 1e-4),
    "privacy.arm_visibility": _one("visible", "hidden", "grouped", "as-local"),
    "privacy.min_batch": _whole(50, 2000),
    "privacy.honest_fraction": _between(0.4, 1),
    "privacy.local_epsilon_max": _between(1, 16),
    "actions": lambda rng: {"count": int(rng.integers(4, 60)), "dimension": int(rng.integers(2, 8))},
    "domain": lambda rng: {"dimension": int(rng.integers(1, 12)), "shape": _one("ball", "box")(rng)},
    "recruitment": _one({"timeout_seconds": 60, "min_response_rate": 0.6}, {"over_selection_factor": 1.5}),
    "algorithm.half_life": _one("auto", 5000.0),
    "algorithm.report_statistic": _one("residual", "joint"),
    "algorithm.sparsity": _whole(1, 8),
    "algorithm.feedback": _one("one-point", "two-point"),
    "algorithm.looks": _one(1, 3, 12),
}


def draw_specs(algorithm: str, model: str, seed: int) -> Iterator[Spec]:
    """Yield specs of an algorithm under a trust model: instances of it with the changes that all checks allow."""
    bases = [spec for spec in specs().values() if (spec.algorithm.name, spec.privacy.model) == (algorithm, model)]
    for index in count():
        rng = np.random.default_rng([seed, crc32(f"{algorithm} {model}".encode()), index])
        spec = bases[rng.integers(len(bases))]
        tables = spec.model_dump(mode="json", exclude_unset=True)
        for key in rng.permutation(list(_CHANGES)):
            table, _, name = key.partition(".")
            value = _CHANGES[key](rng)
            changed = tables | {table: {**(tables.get(table) or {}), name: value} if name else value}
            with suppress(SpecError):
                spec, tables = (parse_spec(changed), changed) if rng.random() < 0.5 else (spec, tables)
        with suppress(SpecError):  # a server refuses some specs only when it opens the first round
            make_record(spec, {})
            if Schedule(spec).open(seed).policy.terms.messages <= MESSAGES_MAX:
                yield spec
