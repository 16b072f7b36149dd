"""12,000 participants of all families and trust models: decisions, and what decides how a report is distributed.

Contexts, coins and outcomes come from a counter that any language has (`word`), so that only results are written down:
of each person the arm, and 4 bytes of a digest of everything that the distribution of their report depends on.
"""

import base64
import hashlib
import json
import math
import struct
import warnings
from typing import Any

import numpy as np

from privateer_client.inputs import encode_context, read_offset, read_outcome
from privateer_client.participation import Participation
from privateer_core.accounting.accountant import account
from privateer_core.accounting.allotment import Allotment, allot
from privateer_core.accounting.events import GroupedResponse, Repeated, ShuffledSubset
from privateer_core.accounting.gaussian import gaussian_delta
from privateer_core.errors import PrivateerError
from privateer_core.mechanisms import RowSums, VectorMechanism
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.bounded_vectors import BoundedVectors
from privateer_core.primitives.public_coins import mix_words
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.features import Feature
from privateer_core.spec.reward import append_numbers
from privateer_core.spec.spec import Spec
from tests.documents import gains, vectors
from tests.documents.false_terms import false_terms
from tests.documents.gains import LIMITS
from tests.documents.grown_policies import grown_additive, grown_events, grown_linear, grown_slope, grown_slopes

PEOPLE = 500
_CENTRAL = {"model": "central", "epsilon": 1.0, "delta": 1e-6}
_SHUFFLE = {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6}
_LOCAL = {"model": "local", "epsilon": 2.0}
_NONE = {"model": "none"}
_MODELS = ({"model": "local", "epsilon": 6.0}, _SHUFFLE, {"model": "central", "epsilon": 1.0}, _NONE)
_NUMBERS: dict[str, Any] = {
    "segments": vectors.HALVES,
    "reward": {"low": -1.0, "high": 3.0, "kind": "numeric", "base_rate": -0.5},
}
_ADJUSTED: dict[str, Any] = {
    "segments": vectors.HALVES,
    "reward": _NUMBERS["reward"]
    | {"covariates": {"x1": {"mean": 0.4, "slope": -1.5}, "x2": {"mean": 0.5, "slope": 0.8}}},
    "algorithm": vectors.WATCHED,
}
_LEARNED: dict[str, Any] = _ADJUSTED | {
    "reward": _NUMBERS["reward"] | {"covariates": {"x1": {"low": 0.0, "high": 1.0}, "x2": {"low": -0.25, "high": 0.75}}}
}
_TOWN = {"town": {"hash_buckets": 21, "missing": True}}
_HOUR = {"hour": {"low": 0.0, "high": 24.0, "cyclic": True, "missing": True}}
_PLAIN = {"x1": {"low": 0.0, "high": 1.0}, "x2": {"low": 0.0, "high": 1.0}}
GRID = 2.0**20
_MOST = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SLOT, _OWN, _REWARD, _FACT, _NOISE = 100, 101, 102, 110, 120
"""Streams of a person's numbers; those below are of features."""


def files() -> dict[str, Any]:
    """Return the content of each file, by its name."""
    decisions = [_describe_people(number, *case) for number, case in enumerate(cases())]
    return {"decisions": decisions, "records": records(), "curves": curves()}


def cases() -> list[tuple[str, Spec, bytes]]:
    """Experiments of all families, and a publication of each."""
    return [*vectors.cases(), *_further_cases()]


def _further_cases() -> list[tuple[str, Spec, bytes]]:
    trial = {"segments": vectors.HALVES, "algorithm": vectors.WATCHED}
    specs: dict[str, tuple[Spec, Any]] = {
        "partition under central": (vectors.spec_of("partition", _CENTRAL, _PLAIN), vectors.grown_partition),
        "partition under none": (vectors.spec_of("partition", _NONE, _PLAIN), vectors.grown_partition),
        "bandit under central": (vectors.spec_of("bandit", {"model": "central", "epsilon": 1.0}, None), None),
        "trial under central": (vectors.spec_of("trial", {"model": "central", "epsilon": 1.0}, _PLAIN, **trial), None),
        "trial under none": (vectors.spec_of("trial", _NONE, _PLAIN, **trial), None),
        "linear under local": (vectors.spec_of("linear", _LOCAL, vectors.FEATURES), grown_linear),
        "linear under local, of epsilon 4": (
            vectors.spec_of("linear", _LOCAL | {"epsilon": 4.0}, _PLAIN),
            grown_linear,
        ),
        "linear under shuffle": (vectors.spec_of("linear", _SHUFFLE, _PLAIN), grown_linear),
        "linear under central": (
            vectors.spec_of("linear", _CENTRAL, _PLAIN | _HOUR, algorithm={"link": "logistic"}),
            grown_linear,
        ),
        "linear under none": (vectors.spec_of("linear", _NONE, _PLAIN), grown_linear),
        "linear under local, joint": (
            vectors.spec_of("linear", _LOCAL | {"delta": 1e-6}, _PLAIN, algorithm={"report_statistic": "joint"}),
            grown_linear,
        ),
        "linear under central, joint": (
            vectors.spec_of("linear", _CENTRAL, _PLAIN | _HOUR, algorithm={"report_statistic": "joint"}),
            grown_linear,
        ),
        "linear under shuffle, of several messages": (
            vectors.spec_of(
                "linear", _SHUFFLE | {"local_epsilon_max": 16.0}, _PLAIN, algorithm={"messages_per_report": 8}
            ),
            grown_linear,
        ),
        **{
            f"additive under {label}": (
                vectors.spec_of("additive", privacy, vectors.FEATURES | _TOWN | _HOUR, algorithm={"bins": 12}, **rest),
                grown_additive,
            )
            for label, privacy, rest in _additive_cases()
        },
        **{
            f"additive under {privacy['model']}, of rare events": (
                vectors.spec_of("additive", privacy, _PLAIN, reward={"base_rate": 0.01}),
                grown_additive,
            )
            for privacy in (_CENTRAL, _SHUFFLE)
        },
        **{
            f"trial of numbers under {privacy['model']}": (vectors.spec_of("trial", privacy, _PLAIN, **_NUMBERS), None)
            for privacy in _MODELS
        },
        **{
            f"trial of adjusted rewards under {privacy['model']}": (
                vectors.spec_of("trial", privacy, _PLAIN, **_ADJUSTED),
                None,
            )
            for privacy in (_NONE, _LOCAL)
        },
        **{
            f"trial under {trust['model']} that {label}": (vectors.spec_of("trial", trust, _PLAIN, **_LEARNED), grown)
            for trust, label, grown in (
                (_CENTRAL | {"delta": 0.0}, "learns slopes", None),
                (_NONE, "has learned a slope and learns another", grown_slope),
                (_CENTRAL | {"delta": 0.0}, "has learned slopes", grown_slopes),
            )
        },
        "partition under local, of rare events": (vectors.spec_of("partition", _LOCAL, _PLAIN), grown_events),
        "partition under shuffle, of rare events": (vectors.spec_of("partition", _SHUFFLE, _PLAIN), grown_events),
    }
    specs |= {f"gain of {name}": (spec, gains.grown_gain(grown)) for name, (spec, grown) in _gain_cases().items()}
    return [(name, spec, vectors.publication_of(spec, grown)) for name, (spec, grown) in specs.items()]


def _additive_cases() -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Trust models; below epsilon 4, where no crowd hides a report, coins give arms."""
    as_local, experiment = {"arm_visibility": "as-local"}, {**gains.FEWER, "evaluation_fraction": 0.0}
    return [
        ("local", _LOCAL | {"epsilon": 4.0}, {}),
        ("shuffle", _SHUFFLE, {}),
        ("shuffle, as-local", _SHUFFLE | {"epsilon": 4.0} | as_local, {}),
        ("central", _CENTRAL, {}),
        ("none", _NONE, {}),
        ("local, arms by coins", _LOCAL, {}),
        ("shuffle, as-local, arms by coins", _SHUFFLE | as_local, {"experiment": experiment}),
    ]


def _gain_cases() -> dict[str, tuple[Spec, Any]]:
    models = (_LOCAL, _SHUFFLE, _CENTRAL, _NONE)
    specs = {trust["model"]: vectors.spec_of("partition", trust, _PLAIN, experiment=gains.TABLE) for trust in models}
    cases_by_name = {f"partition under {model}": (spec, vectors.grown_partition) for model, spec in specs.items()}
    numbers = vectors.spec_of("linear", _SHUFFLE, _PLAIN, experiment=gains.FEWER, reward=_NUMBERS["reward"])
    return cases_by_name | {"linear under shuffle, of numbers": (numbers, grown_linear)}


def _returning_cases() -> list[tuple[str, Spec, bytes]]:
    """Experiments whose people come back."""
    table = {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000, "round_size": 2000, "reports_per_person": 4}
    models = (_LOCAL, _SHUFFLE, _CENTRAL, {"model": "central", "epsilon": 1.0}, _NONE)
    names = ("local", "shuffle", "central", "central, pure", "none")
    specs = {
        f"{kind}, four reports, under {name}": vectors.spec_of(kind, model, _PLAIN, experiment=table)
        for kind in ("partition", "linear")
        for name, model in zip(names, models, strict=True)
        if kind == "partition" or name != "central, pure"
    }
    return [(name, spec, vectors.publication_of(spec)) for name, spec in specs.items()]


def _limits(limits: dict[str, Any]) -> Limits:
    return Limits(**{name: math.inf if limit is None else limit for name, limit in limits.items()})


def word(seed: int, person: int, stream: int) -> int:
    """64 bits of a person: those of public coins at a key."""
    slot, key = np.array([person + seed], np.uint64), np.array([stream + 1], np.uint64)
    return int(mix_words(mix_words(slot * _GOLDEN) ^ mix_words(key * _GOLDEN))[0])


def value(feature: Feature, bits: int) -> Any:
    """A value of a feature, sometimes none or one that the spec has no place for."""
    document = json.loads(feature.model_dump_json())
    kind, place, share = bits % 8, bits >> 3, (bits >> 11) * 2.0**-53
    if kind == 0:
        return None
    if "hash_buckets" in document:
        return f"No. {place % 1000}" if kind > 2 else place % 1000
    if "levels" in document:
        return "elsewhere" if kind == 1 else document["levels"][place % len(document["levels"])]
    if "boolean" in document:
        return bool(place & 1)
    low, high = (
        (document["quantiles"][0], document["quantiles"][-1])
        if "quantiles" in document
        else (document["low"], document["high"])
    )
    if kind <= 2:
        return low if kind == 1 else high
    if kind == 3 and "quantiles" in document:
        return document["quantiles"][place % len(document["quantiles"])]
    return low + (high - low) * (share * 1.2 - 0.1)


def _outcome(spec: Spec, seed: int, person: int) -> Any:
    bits = word(seed, person, _REWARD)
    low, high = spec.reward.low, spec.reward.high
    number = low - 0.5 + (high - low + 1) * ((bits >> 11) * 2.0**-53)
    reward = {0: None, 1: "good", 2: True}.get(bits % 8, number)
    names = getattr(spec.algorithm, "guardrails", ())
    answers = {name: word(seed, person, _FACT + i) % 2 == 1 for i, name in enumerate(names)}
    return {"reward": reward, **answers} if names else reward


def _describe_people(seed: int, name: str, spec: Spec, body: bytes) -> dict[str, Any]:
    followed = Participation(body, spec.name, _limits(LIMITS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        people = [_person(followed, spec, seed, person) for person in range(PEOPLE)]
    response = getattr(followed.terms.mechanism, "response", None)
    return {
        "name": name,
        "publication": base64.b64encode(body).decode(),
        "limits": LIMITS,
        "seed": seed,
        "people": PEOPLE,
        "symbols": response and response.symbols,
        "threshold": response and str(response.threshold),
        "arms": base64.b64encode(bytes(arm for arm, _ in people)).decode(),
        "facts": base64.b64encode(b"".join(facts for _, facts in people)).decode(),
    }


def _person(followed: Participation, spec: Spec, seed: int, person: int) -> tuple[int, bytes]:
    context = {name: value(f, word(seed, person, i)) for i, (name, f) in enumerate(spec.features.items())}
    slot = np.array([word(seed, person, _SLOT) >> 32], np.uint32)
    columns = encode_context(context, spec.features)
    decisions: Any = followed.decide(columns, slot)
    arm = int(decisions.arms[0])
    outcome, (offset, numbers) = _outcome(spec, seed, person), read_offset(context, spec)
    rewards, _ = read_outcome(followed.policy, spec, spec.options[arm], outcome, offset)
    rewards = append_numbers(rewards, numbers)
    report_coins = np.array([word(seed, person, _OWN) >> 32], np.uint32) if followed.policy.has_fresh_coins else slot
    contributions: Any = followed.policy.contribute(columns, report_coins, decisions, rewards)
    facts = columns.astype("<f8").tobytes() + _facts(followed.terms.mechanism, contributions, seed, person)
    return arm, hashlib.sha256(facts).digest()[:4]


def _facts(mechanism: Any, contributions: Any, seed: int, person: int) -> bytes:
    """All that the distribution of a report depends on, but for the probabilities of the response."""
    if isinstance(mechanism, VectorSymbol):
        return _symbols(mechanism, contributions, seed, person)
    if isinstance(mechanism, RowSums):
        words = [word(seed, person, _NOISE + i) for i in range(1 + mechanism.ball.dimension)]
        return mechanism.randomize(contributions, vectors.Words(words)).tobytes()
    if isinstance(mechanism, VectorMechanism):
        return np.rint(contributions.values[0] * GRID).astype("<i4").tobytes()
    # What is sent by whoever keeps what is true, with either bit; of records all that is sent.
    noise = word(seed, person, _NOISE)
    reports = [mechanism.randomize(contributions, vectors.Words([first, 0, noise])).tobytes() for first in (0, _MOST)]
    return b"".join(reports) + struct.pack("<d", float(contributions.values[0]))


def _symbols(mechanism: VectorSymbol, contributions: BoundedVectors, seed: int, person: int) -> bytes:
    """Encode the sender's own symbols; of several messages each message's, after those of a sender that keeps none."""
    if mechanism.repeats == 1:
        return np.sort(mechanism.own_symbols(contributions)[0]).astype("<u2").tobytes()
    count = mechanism.repeats
    noise = [word(seed, person, _NOISE + i) for i in range(2 * count - 1)]
    words = [*noise[: count - 1], *[_MOST] * count, *[0] * count, *noise[count - 1 :]]
    messages = mechanism.randomize(contributions, vectors.Words(words))[0]
    bounded_vectors = BoundedVectors(messages["slot"], np.repeat(contributions.values, count, axis=0))
    return messages.tobytes() + np.sort(mechanism.own_symbols(bounded_vectors), axis=1).astype("<u2").tobytes()


def curves() -> dict[str, list[dict[str, float]]]:
    """Return the costs of subset selection and of grouped bits in a batch, of normal noise and of allotments."""
    names = ("epsilon", "local_epsilon", "symbols", "own_symbols", "honest")
    facts = [(1.0, 4.0, 128, 11, 900), (0.5, 2.0, 64, 32, 10_000), (1.0, 7.0, 512, 3, 1_000_000), (0.0, 1.5, 6, 2, 50)]
    events = [(dict(zip(names, row, strict=True)), ShuffledSubset(*row[1:])) for row in facts]
    subsets = [case | {"delta": _digits(account(event).delta(case["epsilon"]))} for case, event in events]
    names = ("epsilon", "local_epsilon", "honest", "share")
    groups = [(1.0, 3.35, 900, 1.0), (0.5, 1.9, 900, 0.5), (1.0, 3.3, 9000, 0.09375), (0.2, 0.5, 40, 0.25)]
    groups += [(0.0, 1.5, 50, 0.5), (2.0, 2.5, 1, 0.5), (1.0, 12.0, 1_000_000, 0.328125)]
    grouped = [
        dict(zip(names, row, strict=True)) | {"delta": _digits(account(GroupedResponse(*row[1:])).delta(row[0]))}
        for row in groups
    ]
    names = ("epsilon", "local_epsilon", "symbols", "own_symbols", "honest", "repeats")
    several = [
        (1.0, 2.5, 128, 14, 1800, 5),
        (2.0, 5.0, 128, 4, 9000, 3),
        (1.0, 0.25, 8, 3, 50, 16),
        (0.0, 1.5, 6, 2, 50, 2),
    ]
    composed = [
        dict(zip(names, row, strict=True))
        | {"delta": _digits(account(Repeated(ShuffledSubset(*row[1:5]), row[5])).delta(row[0]))}
        for row in several
    ]
    names = ("epsilon", "standard_deviation", "sensitivity")
    noises = [(1.0, 2.0, 1.0), (0.5, 3.0, 1.0), (8.0, 0.5, 1.0), (0.01, 100.0, 2.0), (0.0, 5.0, 3.0)]
    normal = [dict(zip(names, row, strict=True)) | {"delta": _digits(gaussian_delta(*row))} for row in noises]
    names = ("epsilon", "delta", "reports", "least")
    shared = [(1.0, 1e-6, 4, 1e-15), (1.0, 1e-6, 30, 1e-8), (0.4, 1e-5, 300, 1e-15), (1.0, 0.0, 4, 0.0)]
    allotments = [dict(zip(names, row, strict=True)) | _describe_allotment(allot(*row)) for row in shared]
    return {"subsets": subsets, "grouped": grouped, "composed": composed, "normal": normal, "allotments": allotments}


def _describe_allotment(share: Allotment) -> dict[str, float]:
    """The first and a later point of the grid, of the most that a report may cost; of a pure one its epsilon."""
    if share.pure:
        return {"pure": share.pure}
    (_, first), (at, later) = share.grid[0], share.grid[10]
    return {"first": _digits(first), "at": _digits(at), "later": _digits(later)}


def _digits(value: float) -> float:
    # The last ones differ from one processor to another.
    return float(f"{value:.8g}")


def records() -> list[dict[str, Any]]:
    """Publications of records and vectors that a device accepts or refuses, and why."""
    entries = []
    for name, spec, body in [*_further_cases(), *_returning_cases()]:
        for change, changes, limits in false_terms(spec, body):
            changed = vectors.with_changes(body, changes)
            entry = {"name": f"{name}: {change}", "publication": base64.b64encode(changed).decode(), "limits": limits}
            entries.append(entry | _verdict(changed, spec.name, limits))
    return entries


def _verdict(body: bytes, name: str, limits: dict[str, Any]) -> dict[str, Any]:
    try:
        Participation(body, name, _limits(limits))
    except PrivateerError as error:
        return {"refused": error.slug, "field": error.field}
    return {"refused": None}
