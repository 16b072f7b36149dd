"""Vectors of the wire format: publications, decisions, reports, sealed bytes, and what services answer to uploads."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_client.inputs import encode_context
from privateer_client.participation import Participation
from privateer_core.accounting.amplification import shuffled_delta
from privateer_core.algorithms import parse_spec
from privateer_core.codec import encode
from privateer_core.errors import PrivateerError
from privateer_core.policies.policy import prefix_ages, sealed_size
from privateer_core.primitives.public_coins import Layout, hash_to_bucket, hash_to_sign
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.terms_verification import Limits
from privateer_core.privacy.trust import count_honest
from privateer_core.sampling.randomness import RandomizedResponse
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Envelope, Publication, Round, encode_envelope, encode_publication, hpke_info
from privateer_server.rounds.schedule import Schedule
from tests.documents.hpke import seal

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
"""The private half of all rounds' keys here; a server has another for each round, and tells nobody."""
PEOPLE = 40
_TOLD: dict[str, Any] = {"epsilon": 2.0, "arm_visibility": "hidden"}
LIMITS = Limits(**_TOLD)
_UNIT = {"low": 0.0, "high": 1.0}
LOCAL = {"model": "local", "epsilon": 1.0}
TIERS = [{"name": "generous", "epsilon": 2.0, "share": 0.3}, {"name": "lavish", "epsilon": 4.0, "share": 0.2}]
SHUFFLE = {"model": "shuffle", "epsilon": 0.4, "delta": 1e-6}
FEATURES = {
    "age": {"low": 18.0, "high": 78.0, "missing": True},
    "hours": {"quantiles": [0.0, 10.0, 40.0, 40.0, 80.0]},
    "country": {"levels": ["NL", "BE", "DE", "other"]},
    "size": {"levels": ["s", "m", "l"], "ordered": True, "missing": True},
    "rooms": {"levels": [1, 2, 3], "missing": True},
    "premium": {"boolean": True},
}
HALVES = {"features": ["x1", "x2"], "cuts": {"x1": [0.25, 0.5], "x2": [0.6]}}
_QUARTERS = {"features": ["x1"], "cuts": {"x1": [0.25, 0.5, 0.75]}, "proportions": "equal"}
WATCHED = {"guardrails": ["refund", "late"]}
ASKED = WATCHED | {"min_allocation": 0.07}
CROSSED = {"segments": {"features": ["age", "country", "rooms"], "cuts": {"age": [30.0, 48.0]}}}
VALUES: dict[str, list[Any]] = {
    "age": [18, 78, 33.5, 200, -4, None],
    "hours": [0, 7.5, 10, 25, 40, 41, 80, 99],
    "country": ["NL", "BE", "DE", "FR"],
    "size": ["s", "m", "l", None],
    "rooms": [1, 2, 3, 4, None],
    "premium": [True, False, 1, 0],
    "x1": [0.0, 0.25, 0.4999999999999999, 0.5, 0.75, 1.0, 0.1, 0.9, -1, 2],
    "x2": [0.0, 0.25, 0.5, 0.75, 1.0, 0.3, 0.6],
}


def files() -> dict[str, Any]:
    """Return the content of each file, by its name."""
    vectors_by_file: dict[str, Any] = {"coins": coins(), "response": response(), "amplification": amplification()}
    spec = spec_of("trial", LOCAL, None)
    all_cases = [*cases(), ("trial of everybody under local", spec, publication_of(spec))]
    vectors_by_file |= {"publications": [describe_publication(*case) for case in all_cases], "terms": terms(cases())}
    tiers = cases_of_tiers()
    vectors_by_file["tiers"] = {"publications": [describe_publication(*case) for case in tiers], "terms": terms(tiers)}
    return vectors_by_file


def coins() -> list[dict[str, Any]]:
    """Return hashes of coins, and groups, signs and buckets that follow from the hashes."""
    rng, entries = np.random.default_rng(3), []
    for layout in (Layout.example(), Layout(2**64 - 1, np.array([[65_536], [0], [1], [65_535]], np.uint32))):
        coins = np.concatenate([rng.integers(0, 2**32, 8, dtype=np.uint32), np.array([0, 2**32 - 1], np.uint32)])
        for key in range(layout.keys):
            hashes = layout.hashes(coins, np.array([key]))
            rows = zip(coins, hashes, layout.find_groups(hashes, np.array([key])), hash_to_sign(hashes), strict=True)
            entries += [
                {
                    "seed": str(layout.seed),
                    "thresholds": layout.thresholds[key].tolist(),
                    "key": key,
                    "slot": int(slot),
                    "hash": f"{int(word):016x}",
                    "group": int(group),
                    "sign": int(side),
                    "buckets": {str(n): int(hash_to_bucket(np.array([word]), n)[0]) for n in (1, 2, 8, 1024)},
                }
                for slot, word, group, side in rows
            ]
    return entries


def response() -> list[dict[str, Any]]:
    """Thresholds of randomized response."""
    sizes = [(e, s) for e in (0.001, 0.5, 1.0, 2.0, 4.0, 3.127, 16.0) for s in (2, 3, 17, 2048)]
    return [{"epsilon": e, "symbols": s, "threshold": str(RandomizedResponse(e, s).threshold)} for e, s in sizes]


def amplification() -> list[dict[str, float]]:
    """Deltas of shuffled batches."""
    facts = [
        (1.0, 4.0, 3, 900),
        (1.0, 4.0, 2, 900),
        (0.5, 2.5, 17, 5_000),
        (1.0, 4.0, 129, 100_000),
        (2.0, 3.0, 5, 100),
        (1.0, 2.5, 2, 900),
        (0.5, 1.5, 6, 2_000),
    ]
    facts += [(1.0, 0.9, 4, 100), (1.0, 6.0, 2048, 20_000), (0.1, 1.0, 4, 1), (1.0, 10.0, 3, 1_000_000)]
    facts += [(0.01, 1.0, 5, 100_000), (2.0, 2.5, 2, 50)]
    names = ("epsilon", "local_epsilon", "symbols", "honest")
    # To 13 digits: the last ones differ from one processor to another.
    return [dict(zip(names, fact, strict=True)) | {"delta": float(f"{shuffled_delta(*fact):.13g}")} for fact in facts]


def spec_of(name: str, privacy: dict[str, Any], features: dict[str, Any] | None, **sections: Any) -> Spec:
    data: dict[str, Any] = {
        "experiment": {"name": "test", "arms": ["a", "b", "c"], "horizon": 20_000, "round_size": 2000},
        "privacy": privacy,
        "algorithm": {"name": name},
        "reward": {"low": -1.0, "high": 3.0},
    }
    data["algorithm"] |= sections.pop("algorithm", {})
    return parse_spec(data | ({"context": {"features": features}} if features else {}) | sections)


def publication_of(spec: Spec, grown: Callable[[Any, Spec], Any] | None = None) -> bytes:
    """The publication of a round of version 4, of the first round's policy or one ``grown`` from it."""
    policy = Schedule(spec).open(7, 4).policy
    if grown:
        policy = grown(policy, spec)
    terms = policy.terms
    facts = Round(
        *(spec.name, 4, spec.privacy.model, terms.batch_size, sealed_size(policy)),
        *(KEY.public_key().public_bytes_raw(), terms.messages),
    )
    return encode_publication(Publication(facts, spec.model_dump_json().encode(), encode(policy)))


def grown_partition(policy: Any, spec: Spec) -> Any:
    """Return a partition of five bins, one of which has a single arm left, and another two of three."""
    depths, paths = np.array([1, 2, 3, 4, 4]), np.array([0, 2, 6, 14, 15])
    active = np.array([[1, 1, 1], [0, 1, 0], [1, 1, 1], [1, 0, 1], [1, 1, 1]], np.bool_)
    edges = np.array([[21_845, 43_690], [30_000, 30_001], [32_768, 32_768], [1, 65_000]], np.uint32)
    bins = np.array([0, 2, 3, 4])
    choice, mechanism = Layout(2**63 + 12_345, edges), policy.terms.mechanism
    if policy.choice is None:
        question_layout, choice, wholes = choice, None, None
    else:
        # Reports are about the first bin, the next two together, and the last: nine pairs with an arm.
        question_layout, wholes = Layout(99, np.zeros((9, 0), np.uint32)), np.array([0, 1, 1, 2])
    terms = replace(policy.terms, mechanism=msgspec.structs.replace(mechanism, layout=question_layout))
    arrays = {"depths": depths, "paths": paths, "active": active, "bins": bins, "wholes": wholes}
    return replace(policy, **arrays, terms=terms, choice=choice)


def cases() -> list[tuple[str, Spec, bytes]]:
    """Experiments, and a publication of each."""
    plain = {"x1": _UNIT, "x2": _UNIT}
    specs = {
        "partition under local": (spec_of("partition", LOCAL, plain), grown_partition),
        "partition under shuffle": (spec_of("partition", SHUFFLE, plain), grown_partition),
        "partition under shuffle, arms hidden": (
            spec_of("partition", SHUFFLE | {"arm_visibility": "hidden"}, plain),
            grown_partition,
        ),
        "partition with features of every kind": (spec_of("partition", LOCAL, FEATURES), grown_partition),
        "bandit under local": (spec_of("bandit", LOCAL, None), None),
        "bandit under shuffle": (spec_of("bandit", SHUFFLE, None), None),
        "trial under local, one bucket": (spec_of("trial", LOCAL, plain, segments=_QUARTERS), None),
        "trial under local, questions": (spec_of("trial", LOCAL, plain, segments=HALVES, algorithm=ASKED), None),
        "trial under local, some buckets": (spec_of("trial", LOCAL | {"epsilon": 2.0}, FEATURES, **CROSSED), None),
        "trial under shuffle": (spec_of("trial", SHUFFLE, plain, segments=HALVES, algorithm=WATCHED), None),
    }
    return [(name, spec, publication_of(spec, grown)) for name, (spec, grown) in specs.items()]


def cases_of_tiers() -> list[tuple[str, Spec, bytes]]:
    """Experiments whose participants choose a tier, and a publication of each."""
    plain, privacy = {"x1": _UNIT, "x2": _UNIT}, LOCAL | {"tiers": TIERS}
    partition, bandit = spec_of("partition", privacy, plain), spec_of("bandit", privacy, None)
    return [
        ("partition with tiers", partition, publication_of(partition, grown_partition)),
        ("bandit with tiers", bandit, publication_of(bandit)),
    ]


class Words:
    """Random words that are known."""

    def __init__(self, words: list[int]) -> None:
        self._words = list(words)

    def words(self, count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The next words."""
        next_words, self._words = self._words[:count], self._words[count:]
        return np.array(next_words, np.uint64)


def describe_publication(name: str, spec: Spec, body: bytes) -> dict[str, Any]:
    """Describe a publication, with decisions and messages of participants."""
    followed = Participation(body, spec.name, LIMITS)
    facts = followed.round
    return {
        "name": name,
        "publication": body.hex(),
        "digest": followed.header.digest.hex(),
        "key_id": followed.header.key_id.hex(),
        "private_key": KEY.private_bytes_raw().hex(),
        "info": hpke_info(followed.header, facts.model).hex(),
        "limits": _TOLD,
        "people": [_person(followed, spec, np.random.default_rng([5, number])) for number in range(PEOPLE)],
    }


def _person(followed: Participation, spec: Spec, rng: np.random.Generator) -> dict[str, Any]:
    context = {name: VALUES[name][int(rng.integers(len(VALUES[name])))] for name in spec.features}
    columns, slot = encode_context(context, spec.features), rng.integers(0, 2**32, 1, dtype=np.uint32)
    decisions = followed.decide(columns, slot)
    reward: Any = float(np.round(rng.uniform(-1.5, 3.5), 3))
    if names := getattr(spec.algorithm, "guardrails", ()):
        reward = {"reward": reward, **{name: bool(rng.random() < 0.5) for name in names}}
    value, _ = followed.policy.read(spec, reward)
    report_coins = rng.integers(0, 2**32, 1, dtype=np.uint32) if followed.policy.has_fresh_coins else slot
    # A word of zeros keeps what is true: without it few symbols would be.
    words = [int(word) for word in rng.integers(0, 2**64, 3, dtype=np.uint64)]
    words[1] = 0 if rng.random() < 0.5 else words[1]
    policy: Any = followed.policy
    contributions = policy.contribute(columns, report_coins, decisions, value)
    report = policy.terms.mechanism.randomize(contributions, Words(words)).tobytes()
    [message] = prefix_ages([report], np.zeros(1, np.int64)) if policy.tells_age else [report]
    identity, ephemeral = rng.bytes(16), X25519PrivateKey.from_private_bytes(rng.bytes(32))
    info = hpke_info(followed.header, followed.round.model)
    sealed = seal(identity + message, followed.round.public_key, info, ephemeral)
    return {
        "context": context,
        "columns": columns[0].tolist(),
        "slot": int(slot[0]),
        "arm": followed.decider.present_decision(spec, decisions),
        "reward": reward,
        "report_slot": int(report_coins[0]),
        "words": [str(word) for word in words],
        "message": message.hex(),
        "report_id": identity.hex(),
        "ephemeral_key": ephemeral.private_bytes_raw().hex(),
        "body": encode_envelope(Envelope(followed.header, sealed)).hex(),
    }


def terms(experiments: list[tuple[str, Spec, bytes]]) -> list[dict[str, Any]]:
    """Publications that a device accepts or refuses, and why."""
    entries = []
    for name, spec, body in experiments:
        for change, changes, limits in _lies(spec, body):
            changed = with_changes(body, changes)
            entry = {"name": f"{name}: {change}", "publication": changed.hex(), "limits": limits}
            entries.append(entry | _verdict(changed, spec.name, limits))
    return entries


def _lies(spec: Spec, body: bytes) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Changes of round and policy, by dotted names, and limits of the device."""
    hidden = {"arm_visibility": "hidden"}
    mechanism = msgspec.msgpack.decode(msgspec.msgpack.decode(body)[2])["terms"]["mechanism"]
    if spec.privacy.tiers:
        return _tiered(mechanism)
    grouped = "epsilons" in mechanism
    epsilon_path = f"policy.terms.mechanism.{'epsilons' if grouped else 'epsilon'}"
    raised = [mechanism["epsilons"][0] + 0.02, *mechanism["epsilons"][1:]] if grouped else mechanism["epsilon"] + 0.02
    honest, batch = count_honest(spec.privacy, 2000), spec.first_batch("")
    common = [
        ("as it is", {}, hidden),
        ("arms are seen", {}, {}),
        ("a device that allows less", {}, hidden | {"epsilon": 0.5}),
        ("too large a local epsilon", {epsilon_path: [4.5] * len(mechanism["epsilons"]) if grouped else 4.5}, hidden),
        ("a little more local epsilon than the promise allows", {epsilon_path: raised}, hidden),
        ("another epsilon than the spec's", {"policy.terms.epsilon": 2.0}, hidden),
        ("another delta", {"policy.terms.delta": 1e-5}, hidden),
        ("fewer people in the terms", {"policy.terms.batch_size": batch - 1}, hidden),
        ("more honest people", {"policy.terms.honest": honest + 100}, hidden),
        ("fewer people in round and terms", {"round.3": 500, "policy.terms.batch_size": 500}, hidden),
        ("another model in the round", {"round.2": "central"}, hidden),
        ("another name", {"round.0": "other"}, hidden),
        ("another version", {"round.1": 5}, hidden),
        ("another size", {"round.4": 71}, hidden),
        ("no buckets", {"policy.terms.mechanism.buckets": 0}, hidden),
        ("too many symbols", {"policy.terms.mechanism.buckets": 40_000}, hidden),
        ("another mechanism", {"policy.terms.mechanism.type": "laplace-cells"}, hidden),
        ("two reports", {"policy.terms.reports": 2}, hidden),
        ("no calibration of a device's", {"policy.terms.calibration": "published"}, hidden),
    ]
    if questions := getattr(spec, "questions", ()):
        return [*common[:2], *_uneven(spec, questions), ("no questions", {"policy.questions": []}, hidden)]
    if spec.privacy.arm_visibility == "hidden" or len(spec.features) > 2:
        return common[:4]
    if grouped:
        return [*common, *_ungrouped(spec, mechanism)]
    if spec.question is not KeyedMeans or not spec.features:
        return common
    return [*common, ("a bin is missing", {"policy.paths": np.array([0, 2, 6, 14, 14])}, hidden)]


def _tiered(mechanism: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Channels that are not those of the spec's tiers, and limits by which devices take each of the tiers."""
    path, channels = "policy.terms.mechanism", mechanism["channels"]
    generous = {"epsilon": 2.0}

    def with_channel(tier: int, **changes: Any) -> dict[str, Any]:
        return {f"{path}.channels": [*channels[:tier], channels[tier] | changes, *channels[tier + 1 :]]}

    whole = {"type": "signed-symbol", "layout": mechanism["layout"]}
    whole |= {name: value for name, value in channels[0].items() if name != "share"}
    return [
        ("the lowest tier", {}, {"epsilon": 1.0}),
        ("the middle tier", {}, generous),
        ("the highest tier", {}, {"epsilon": 4.0}),
        ("no tier for a device that allows less", {}, {"epsilon": 0.5}),
        ("no tier above what the report alone may cost", {}, {"epsilon": 4.0, "local_epsilon": 0.5}),
        ("too large an epsilon of the device's tier", with_channel(1, epsilon=2.02), generous),
        ("too large an epsilon of another tier", with_channel(2, epsilon=4.02), generous),
        ("a smaller epsilon of the device's tier", with_channel(1, epsilon=1.9), generous),
        ("a tier too few", {f"{path}.channels": channels[:2]}, generous),
        ("a tier too many", {f"{path}.channels": [*channels, channels[0]]}, generous),
        ("no tiers", {f"{path}.channels": []}, generous),
        ("one symbol for everybody", {path: whole}, {}),
        ("too many symbols", with_channel(2, buckets=40_000), generous),
        ("no buckets", with_channel(1, buckets=0), generous),
    ]


def _first_policy(spec: Spec) -> Any:
    return Schedule(spec).open(7, 4).policy


def _ungrouped(spec: Spec, mechanism: dict[str, Any]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Groups that are smaller than their bits allow, and bits that count on everybody where arms are seen."""
    hidden, path = {"arm_visibility": "hidden"}, "policy.terms.mechanism"
    edges = _first_policy(spec).layout.thresholds.copy()
    edges[0, 0] //= 4
    local = min(mechanism["epsilons"])
    whole = {"type": "signed-symbol", "layout": mechanism["layout"], "epsilon": local, "buckets": 1, "elsewhere": False}
    return [
        ("fewer people of an arm", {f"{path}.layout.thresholds": edges}, hidden),
        ("no local epsilon of an arm", {f"{path}.epsilons": mechanism["epsilons"][:-1]}, hidden),
        ("an arm without noise", {f"{path}.epsilons": [*mechanism["epsilons"][:-1], 0.0]}, hidden),
        ("bits that count on everybody", {path: whole}, {}),
        ("coins of its own", {"policy.choice": mechanism["layout"]}, {}),
    ]


def _uneven(spec: Spec, questions: Sequence[Any]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """List coins that ask a segment otherwise, or give it an arm of its own in a question about all participants."""
    arms, lies = len(spec.options), []
    everybody = [question.everybody for question in questions].index(True)
    for change, edge in {
        "more people of a segment are asked for the reward": arms - 1,
        "an arm of a segment's own in one question": arms,
        "an arm of a segment's own in a question about everybody": everybody * arms,
    }.items():
        edges = _first_policy(spec).choice.thresholds.copy()
        edges[1, edge] += 300
        paths = ("policy.choice.thresholds", "policy.terms.mechanism.layout.thresholds")
        lies.append((change, dict.fromkeys(paths, edges), {"arm_visibility": "hidden"}))
    return lies


def with_changes(body: bytes, changes: dict[str, Any]) -> bytes:
    published = msgspec.msgpack.decode(body)
    roots = {"round": published[0], "policy": msgspec.msgpack.decode(published[2])}
    for name, value in changes.items():
        *path, last = name.split(".")
        at: Any = roots
        for part in path:
            at = at[int(part) if isinstance(at, list) else part]
        at[int(last) if isinstance(at, list) else last] = value
    return msgspec.msgpack.encode([roots["round"], published[1], encode(roots["policy"])])


def _verdict(body: bytes, name: str, limits: dict[str, Any]) -> dict[str, Any]:
    try:
        Participation(body, name, Limits(**limits))
    except PrivateerError as error:
        return {"refused": error.slug, "field": error.field}
    return {"refused": None}
