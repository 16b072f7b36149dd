"""11,000 choices by exported policies of every algorithm: open, draining, for a source's people, and finished.

Contexts and coins come from the counter of `tests.documents.families`; of each choice 4 bytes are written down, of the
SHA-256 of its canonical JSON, so that arms, plays and points are compared alike.
"""

import base64
import hashlib
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_client import OfflinePolicy
from privateer_core.algorithms import algorithm
from privateer_core.codec import encode, encode_canonical_json
from privateer_core.policies.policy import Policy, sealed_size
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Drain, Publication, Round, encode_publication
from privateer_server.rounds.schedule import Schedule
from tests.documents import exports, families, vectors

PEOPLE = 500
VERSION = 4
_KEY = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw()
_UNIT = {"low": 0.0, "high": 1.0}
_PLAIN = {"x1": _UNIT, "x2": _UNIT}
_SLOT = 100
_ELSEWHERE = {"sources": [{"name": "clinic", "participants": 5000, "epsilon": 2.0, "shares": [0.5, 0.25, 0.25]}]}
_TABLE = {
    "name": "test",
    "arms": ["a", "b", "c"],
    "horizon": 20_000,
    "round_size": 2000,
    "conversion_window_seconds": 3600.0,
}
Grown = Callable[[Any, Spec], Any]


def files() -> dict[str, Any]:
    """Return the content of the file, by its name."""
    return {"offline": [_describe_choices(seed, *case) for seed, case in enumerate(cases())]}


def cases() -> list[tuple[str, Spec, bytes]]:
    """Twenty-three experiments, and a publication of each."""
    partition, bandit, trial, linear = "partition", "bandit", "trial", "linear"
    features, questions = vectors.FEATURES, {"segments": vectors.HALVES, "algorithm": vectors.ASKED}
    armed: dict[str, tuple[Spec, Grown | None]] = {
        "partition, open": (vectors.spec_of(partition, vectors.LOCAL, features), vectors.grown_partition),
        "partition under shuffle": (vectors.spec_of(partition, vectors.SHUFFLE, _PLAIN), vectors.grown_partition),
        "partition, in a source's turn": (vectors.spec_of(partition, vectors.LOCAL, _PLAIN, **_ELSEWHERE), None),
        "bandit": (vectors.spec_of(bandit, vectors.SHUFFLE, None), None),
        "trial with questions": (vectors.spec_of(trial, vectors.LOCAL, _PLAIN, **questions), None),
        "trial with crossed segments": (vectors.spec_of(trial, vectors.SHUFFLE, features, **vectors.CROSSED), None),
        "linear": (vectors.spec_of(linear, vectors.LOCAL, features), families.grown_linear),
        "linear under shuffle": (vectors.spec_of(linear, vectors.SHUFFLE, _PLAIN), families.grown_linear),
        "additive": (vectors.spec_of("additive", vectors.SHUFFLE, features), families.grown_additive),
    }
    cases = [(name, spec, published(spec, grown)) for name, (spec, grown) in armed.items()]
    cases += [(name, spec, published(spec, grown)) for name, (spec, grown) in _python_only_cases().items()]
    late = vectors.spec_of(partition, vectors.LOCAL, features, experiment=_TABLE)
    cases.append(("partition, draining", late, published(late, vectors.grown_partition, drain=_last(late, _fix_arms))))
    over = {partition: _fix_arms, trial: None, linear: families.grown_linear, "additive": families.grown_additive}
    for kind, grown in over.items():
        spec = vectors.spec_of(kind, vectors.LOCAL, _PLAIN)
        cases.append((f"{kind}, finished", spec, published(spec, None, _last(spec, grown))))
    return cases


def _python_only_cases() -> dict[str, tuple[Spec, Grown | None]]:
    """Experiments of algorithms in whose rounds the client in JavaScript takes no part."""
    sparse, phased, convex = (algorithm(name).spec.instances() for name in ("sparse", "phased", "convex"))
    return {
        "sparse, exploring": (sparse["local"], None),
        "sparse under central": (sparse["central"], _sparse),
        "sparse under shuffle": (sparse["shuffle"], _sparse),
        "phased": (phased["local"], None),
        "phased under shuffle": (phased["shuffle"], None),
        "phased in a box": (phased["box"], None),
        "convex, two points": (convex["central"], _convex),
        "convex, one point": (convex["local-ellipsoid"], _convex),
        "convex, arms hidden": (convex["shuffle-hidden"], _on_grid),
    }


def _sparse(policy: Any, _spec: Spec) -> Any:
    coefficients = {"places": np.array([0, 2]), "coefficients": np.array([0.31, -0.27]), "explores": False}
    return replace(policy, **coefficients, intercepts=np.array([0.02, -0.11, 0.07]))


def _convex(policy: Any, _spec: Spec) -> Any:
    rng = np.random.default_rng(4)
    return _on_grid(replace(policy, centre=rng.normal(0, 0.1, policy.centre.shape), axes=policy.axes * 0.37), _spec)


def _on_grid(policy: Any, _spec: Spec) -> Any:
    """A policy of numbers that all machines have: a factorization gives each its own last digits."""
    centre, axes = (np.rint(array * families.GRID) / families.GRID for array in (policy.centre, policy.axes))
    return replace(policy, centre=centre, axes=axes)


def _last(spec: Spec, grown: Grown | None = None) -> Policy:
    schedule = Schedule(spec)
    policy = schedule.open_next_step(schedule.open(7, VERSION).state, VERSION, 7, is_inviting=False).policy
    return grown(policy, spec) if grown else policy


def _fix_arms(policy: Any, _spec: Spec) -> Any:
    """Return a policy of four bins, each of which has another arm than the next."""
    active = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], np.bool_)
    return replace(policy, depths=np.array([1, 2, 3, 3]), paths=np.array([0, 2, 6, 7]), active=active)


def published(spec: Spec, grown: Grown | None = None, over: Policy | None = None, drain: Policy | None = None) -> bytes:
    """The publication of a first round, of a policy ``grown`` from its own; of an experiment that is ``over``."""
    step = Schedule(spec).open(7, VERSION)
    policy = over or (grown(step.policy, spec) if grown else step.policy)
    terms = policy.terms
    timed = {} if over else {"least": step.min_reports, "deadline": int(1000 + step.seconds) if step.seconds else 0}
    round_ = Round(
        *(spec.name, VERSION, spec.privacy.model, terms.batch_size, sealed_size(policy), _KEY, terms.messages),
        groups=terms.mechanism.groups,
        **timed,
    )
    late = None if drain is None else Drain(2_000_000_000, encode(drain))
    return encode_publication(Publication(round_, spec.model_dump_json().encode(), encode(policy), drain=late))


def _describe_choices(seed: int, name: str, spec: Spec, body: bytes) -> dict[str, Any]:
    document = exports.decode_export(exports.build_export(spec, body))
    policy = OfflinePolicy.read(msgspec.json.encode(document))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = [choose_for(policy, spec, seed, person) for person in range(PEOPLE)]
    digests = b"".join(hashlib.sha256(encode_canonical_json(_with_text_keys(choice))).digest()[:4] for choice in chosen)
    return {
        "name": name,
        "document": document,
        "seed": seed,
        "people": PEOPLE,
        "first": _with_text_keys(chosen[0]),
        "digests": base64.b64encode(digests).decode(),
    }


def choose_for(policy: OfflinePolicy, spec: Spec, seed: int, person: int) -> Any:
    """Return what is chosen for a person."""
    word = families.word
    context = {name: families.value(f, word(seed, person, i)) for i, (name, f) in enumerate(spec.features.items())}
    return policy.choose(context, coins=word(seed, person, _SLOT) >> 32)


def _with_text_keys(chosen: Any) -> Any:
    """A choice as JSON: its keys are text."""
    return {str(key): value for key, value in chosen.items()} if isinstance(chosen, dict) else chosen
