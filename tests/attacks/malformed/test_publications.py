"""Publications made to break a device: whatever the bytes, it follows them, or refuses and does not pay.

A device that ends in another exception than ours crashes its application; one that ends so after its ledger has paid
has lost its only report. Every field of every part is set to every hostile value, alone and together with what must
agree with it, and bytes are changed, cut out and put in.
"""

import copy
import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import msgspec
import pytest

from privateer_client import Client
from privateer_client.ledger.account_protocol import Payment
from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import ShuffledBits
from privateer_core.errors import InputError, Malformed, TermsRefused
from privateer_core.privacy.trust import TRUST, count_honest
from tests.support import publications
from tests.support.devices import EVERYTHING
from tests.support.memory_ledgers import MemoryLedger
from tests.support.notary import notarized
from tests.support.phased import small_spec
from tests.support.specs import SHUFFLE, make_spec, sparse_spec

SOURCES = [{"name": "clinic", "participants": 1000, "epsilon": 2.0, "shares": [0.5, 0.25, 0.25]}]
REDUCED = {"recruitment.timeout_seconds": 60, "recruitment.extensions": 0, "recruitment.min_response_rate": 0.6}
SPECS = {
    "local": make_spec(),
    "shuffle": make_spec(SHUFFLE),
    "sources": make_spec(SHUFFLE | {"sources": SOURCES}),
    "central": make_spec({"privacy.model": "central", "privacy.delta": 1e-6}),
    "none": make_spec({"privacy.model": "none", "privacy.epsilon": None}),
    "vectors-local": small_spec("local"),
    "vectors-normal": small_spec("local-normal"),
    "vectors-reduced": small_spec("shuffle", REDUCED),
    "vectors-central": small_spec("central"),
    "vectors-none": small_spec("none"),
    "sparse-central": sparse_spec(context__features=4, algorithm__sparsity=2),
    "sparse-local": sparse_spec("local", context__features=4, algorithm__sparsity=2),
    "sparse-shuffle": sparse_spec("shuffle", context__features=4, algorithm__sparsity=2),
}
"""Those with sources and with a deadline are under shuffle."""
NUMBERS: list[Any] = [-1, 0, 1, 2, 3, 64, 1024, 1025, 1 << 15, 1 << 17, 10**8, 10**10, (1 << 64) - 1, -(1 << 63)]
NUMBERS += [-0.0, 5e-324, 1e-310, 1e-12, 0.1, math.nextafter(0.5, 0), 0.5, 1 - 1e-16, 16.0, 1e12, 1e50, 1e308]
NUMBERS += [math.nan, math.inf]
VALUES: list[Any] = [*NUMBERS, None, True, "", "local", "x" * 100_000, b"", [], {}]
SHAPES: list[Any] = [[0], [1], [1 << 40, 0], [0, 1 << 40], [(1 << 64) - 1, 0], [-1], [1, 1], [], [1] * 70, "x", [0.5]]
ARRAYS: list[Any] = [
    [kind, shape, data]
    for kind in ("<i8", "|b1", "<f8", "|O8")
    for shape in SHAPES
    for data in (b"", b"\xff" * 8, "text")
]
GONE = object()


def answer(request: httpx.Request, body: bytes) -> httpx.Response:
    """The server's, and the shuffler's."""
    if request.method == "GET":
        return httpx.Response(200, content=body)
    return httpx.Response(202, json={"accepted": 1, "refused": {}})


class Device:
    """Takes part in what it is told, as an application does, and counts how that ends."""

    def __init__(self, name: str) -> None:
        self.cohort = "clinic" if name == "sources" else ""
        self.ends: Counter[str] = Counter()
        self.payments: list[Payment] = []
        self.longest = 0.0

    def follow_publication(self, body: bytes) -> None:
        """One publication."""
        ledger, began = MemoryLedger(), time.process_time()
        transport = notarized(lambda request: answer(request, body))
        client = Client(
            "http://server", shuffler="http://shuffler", limits=EVERYTHING, ledger=ledger, transport=transport
        )
        try:
            session: Any = client.join("test", self.cohort)
        except (Malformed, TermsRefused, InputError):
            assert not ledger.payments
            self.ends["refused"] += 1
        else:
            self._take_part(session, ledger)
            self.ends["followed"] += 1
        finally:
            client.close()
        self.longest = max(self.longest, time.process_time() - began)

    def _take_part(self, session: Any, ledger: MemoryLedger) -> None:
        part = session._participation
        context = dict.fromkeys(part.spec.features, 0.25)
        choice = session.choose(context)
        reward = dict.fromkeys(choice, 0.25) if isinstance(choice, dict) else 0.75
        past = (context, part.spec.options[1], reward)
        status = session.report_past(*past) if self.cohort else session.report(reward)
        self.payments += ledger.payments
        assert len(ledger.payments) == (status == "accepted")


@cache
def honest(name: str) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Round, spec and policy of an honest publication, as plain data."""
    facts, spec, policy, *_ = msgspec.msgpack.decode(publications.published(SPECS[name]))
    return facts, json.loads(spec), msgspec.msgpack.decode(policy)


def published(facts: list[Any], spec: Any, policy: Any) -> bytes:
    text = spec if isinstance(spec, bytes) else json.dumps(spec).encode()
    return msgspec.msgpack.encode([facts, text, msgspec.msgpack.encode(policy)])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree, but those within an array."""
    items = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    if isinstance(value, list) and len(value) == 3 and isinstance(value[2], bytes):
        return
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A tree with another value at a place, or without it."""
    changed = copy.deepcopy(value)
    target = at(changed, path[:-1])
    if new is GONE:
        del target[path[-1]]
    else:
        target[path[-1]] = new
    return changed


def in_json(value: Any) -> bool:
    return not isinstance(value, bytes) and not (isinstance(value, float) and not math.isfinite(value))


def changed_once(name: str) -> Iterator[bytes]:
    facts, spec, policy = honest(name)
    for place in range(len(facts)):
        yield from (published(put(facts, (place,), value), spec, policy) for value in VALUES)
    for path in places(policy):
        extra = ARRAYS if isinstance(at(policy, path), list) else []
        yield from (published(facts, spec, put(policy, path, value)) for value in [*VALUES, GONE, *extra])
    for path in places(spec):
        extra = [10**400, [[]] * 3, [[1e308, 1e308]] * 2, {"x" * 300_000: {"low": 0, "high": 1}}, GONE]
        yield from (published(facts, put(spec, path, value), policy) for value in [*VALUES, *extra] if in_json(value))


def agreeing(name: str, rng: random.Random) -> bytes:
    """Hostile terms, with a round and a spec that agree with them where they can."""
    facts, spec, policy = parts_of(name)
    terms, privacy = policy["terms"], spec["privacy"]
    mechanism = terms["mechanism"]
    tables = [terms, mechanism, mechanism.get("ball", {})]
    fields = [(table, field) for table in tables for field, value in table.items() if isinstance(value, int | float)]
    for table, field in rng.sample(fields, rng.choice([1, 2, 3])):
        table[field] = rng.choice(NUMBERS)
    for field in ("epsilon", "delta"):
        if in_json(terms[field]):
            privacy[field] = terms[field]
    for source in spec["sources"]:
        source["epsilon"] = privacy["epsilon"]
    privacy["honest_fraction"] = rng.choice([1.0, 0.5, 1e-6])
    if isinstance(terms["batch_size"], int):
        facts[3] = terms["batch_size"]
    if "draw" in policy:
        _agree_on_vectors(facts, spec, policy)
    else:
        privacy["local_epsilon_max"] = 16.0
    if rng.random() < 0.9:
        fewest = facts[7] if facts[8] else facts[3]
        terms["honest"] = count_honest(type("", (), privacy | {"trust": TRUST[privacy["model"]]}), max(0, fewest))
    return published(facts, spec, policy)


def _agree_on_vectors(facts: list[Any], spec: dict[str, Any], policy: dict[str, Any]) -> None:
    mechanism, draw = policy["terms"]["mechanism"], policy["draw"]
    ball = mechanism["ball"]
    draw["places"] = facts[3]
    spec["experiment"]["participants"] = draw["people"] = 10**6
    if in_json(ball["bound"]):
        spec["reward"] = {"low": -ball["bound"], "high": ball["bound"]}
    if not isinstance(ball["coordinates"], int):
        return
    if "bits" in mechanism:
        messages = mechanism["levels"] + mechanism["bits"]
        if isinstance(messages, int):
            facts[6] = min(abs(ball["coordinates"] * messages), 1 << 62)
    elif "directions" not in mechanism:
        facts[4] = 64 + min(abs(4 * ball["coordinates"]), 1 << 62)


def parts_of(name: str) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    return copy.deepcopy(honest(name))


def with_other_bytes(name: str, rng: random.Random) -> bytes:
    body = bytearray(published(*honest(name)))
    for _ in range(rng.choice([1, 1, 2, 8])):
        place, kind = rng.randrange(len(body)), rng.randrange(3)
        if kind == 0:
            body[place] = rng.randrange(256)
        elif kind == 1 and len(body) > 200:
            del body[place : place + rng.choice([1, 4, 100])]
        else:
            body[place:place] = bytes(
                rng.choice([0x91, 0x81, 0xDD, 0xDF, 0xC6, 255, 0]) for _ in range(rng.choice([1, 4, 2000]))
            )
    return bytes(body)


@pytest.fixture(scope="module")
def heaviest() -> float:
    """What the largest honest round of vectors costs a device to check, in seconds on this machine."""
    began = time.process_time()
    account(ShuffledBits(10**10, 0.4999999, 64, 5)).delta(1.0)
    return time.process_time() - began


@pytest.mark.parametrize(
    "name",
    [
        "local",
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in ("central", "vectors-local", "sources", "vectors-reduced", "sparse-central")
        ),
    ],
)
def test_every_field_with_every_hostile_value_is_followed_or_refused(name, heaviest):
    device = Device(name)
    for body in changed_once(name):
        device.follow_publication(body)
    assert device.ends["followed"] > 30  # what costs nobody anything: another seed, a wider range
    assert device.ends["refused"] > 1000
    assert device.longest < 20 * heaviest


@pytest.mark.parametrize("name", SPECS)
def test_every_field_of_a_policy_left_out(name):
    """A field without a default must not take the one that its base class has under the same name."""
    device = Device(name)
    facts, spec, policy = parts_of(name)
    for path in places(policy):
        device.follow_publication(published(facts, spec, put(policy, path, GONE)))
    assert device.ends["refused"] > 5


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.battery
def test_consistent_hostile_terms_are_followed_or_refused(name, heaviest):
    device, rng = Device(name), random.Random(7)
    for _ in range(150):
        device.follow_publication(agreeing(name, rng))
    assert device.ends["followed"] > 0
    assert device.ends["refused"] > 50
    assert device.longest < 20 * heaviest


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.battery
def test_changed_bytes_are_followed_or_refused(name):
    device, rng = Device(name), random.Random(8)
    device.follow_publication(published(*honest(name)))
    assert device.ends["followed"] == 1
    for _ in range(300):
        device.follow_publication(with_other_bytes(name, rng))
    assert device.ends["refused"] > 50


DEPTHS = [100, 900, 100_000]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", ["local", "vectors-local"])
def test_deep_nesting_is_refused(name, depth):
    """A decoder that recurses ends in RecursionError, which is none of ours."""
    facts, spec, policy = parts_of(name)
    device = Device(name)
    deep = b"\x91" * depth + b"\xc0"
    device.follow_publication(deep)
    packed = msgspec.msgpack.encode(policy)
    for field in ("active", "terms", "unknown"):
        raw = msgspec.msgpack.encode(policy | {field: msgspec.Raw(deep)})
        device.follow_publication(msgspec.msgpack.encode([facts, json.dumps(spec).encode(), raw]))
    device.follow_publication(msgspec.msgpack.encode([msgspec.Raw(deep), json.dumps(spec).encode(), packed]))
    for field in ("population", "context", "algorithm", "unknown"):
        text = json.dumps(spec | {field: "?"}).replace('"?"', "[" * depth + "]" * depth).encode()
        device.follow_publication(msgspec.msgpack.encode([facts, text, packed]))
        text = json.dumps(spec | {field: "?"}).replace('"?"', '{"name":' * depth + "1" + "}" * depth).encode()
        device.follow_publication(msgspec.msgpack.encode([facts, text, packed]))
    assert device.ends["followed"] <= (2 if depth < 1000 else 0)  # tables that services and devices ignore


@pytest.mark.parametrize("chosen", [-1, 0, 1025, 40_000, 1 << 40])
def test_too_many_chosen_directions_are_refused(chosen):
    """The report failed in sorting, or in its randomizer, after it was paid for."""
    facts, spec, policy = parts_of("vectors-local")
    policy["terms"]["mechanism"]["chosen"] = chosen
    device = Device("vectors-local")
    device.follow_publication(published(facts, spec, policy))
    assert device.ends == {"refused": 1}


@pytest.mark.parametrize("probability", [5e-324, 1e-310, 1e-12, 1e-9, 1e-6])
def test_extreme_probabilities_of_bits_are_refused(probability):
    """Losses so large that their exponential is no number ended the accountant."""
    facts, spec, policy = parts_of("vectors-reduced")
    terms = policy["terms"]
    mechanism = terms["mechanism"]
    for bits, levels in ((1, 1), (mechanism["bits"], 1), (1, 64), (40, 1024)):
        mechanism |= {"probability": probability, "bits": bits, "levels": levels}
        facts[6] = mechanism["ball"]["coordinates"] * (bits + levels)
        device = Device("vectors-reduced")
        device.follow_publication(published(facts, spec, policy))
        assert device.ends == {"refused": 1}


def test_excessive_work_for_a_report_is_refused():
    """Thousands of directions in thousands of dimensions: minutes for one report, on a telephone's battery."""
    facts, spec, policy = parts_of("vectors-local")
    for directions in (1025, 1 << 14):
        policy["terms"]["mechanism"] |= {"directions": directions, "chosen": 1}
        device = Device("vectors-local")
        device.follow_publication(published(facts, spec, policy))
        assert device.ends == {"refused": 1}


def test_booleans_of_other_bytes_are_refused():
    """numpy counts such bytes as they are, so that a bin would have 255 active arms, and slots none of them."""
    facts, spec, policy = parts_of("local")
    kind, shape, data = policy["active"]
    assert kind == "|b1"
    policy["active"] = [kind, shape, b"\xff" + data[1:]]
    device = Device("local")
    device.follow_publication(published(facts, spec, policy))
    assert device.ends == {"refused": 1}


@pytest.mark.parametrize("name", ["central", "none"])
def test_the_ledger_enters_no_finite_local_epsilon_of_a_record(name):
    """The ledger would enter next to nothing for a record that is sent as it is."""
    facts, spec, policy = parts_of(name)
    for table in (policy, policy["terms"], policy["terms"]["mechanism"]):
        table["local_epsilon"] = 1e-9
        device = Device(name)
        device.follow_publication(published(facts, spec, policy))
        assert all(payment.local_epsilon == math.inf for payment in device.payments)
        del table["local_epsilon"]


def test_a_hostile_result_is_ignored():
    """What a device does not need cannot harm it."""
    facts, spec, policy = parts_of("local")
    packed = [facts, json.dumps(spec).encode(), msgspec.msgpack.encode(policy)]
    device = Device("local")
    for result in (b"", b"\xc1", b"\x91" * 100_000, bytes(1 << 20)):
        device.follow_publication(msgspec.msgpack.encode([*packed, result]))
    device.follow_publication(msgspec.msgpack.encode([*packed, "text"]))
    device.follow_publication(msgspec.msgpack.encode([*packed, b"", b"more"]))
    assert device.ends == {"followed": 4, "refused": 2}
