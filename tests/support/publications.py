"""Publications for tests of devices: as a server makes them, and with lies."""

from functools import cache
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from privateer_core.codec import encode
from privateer_core.policies.policy import sealed_size
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import Drain, Publication, Round, encode_publication
from privateer_server.rounds.schedule import Schedule
from tests.support.specs import SHUFFLE, make_spec

KEY = X25519PrivateKey.generate()
NOW = 1000.0
OVER = {"terms": {"batch_size": 0, "honest": 0}, "round_": {"batch_size": 0, "least": 0, "deadline": 0}}
"""What changes when the experiment asks nobody any more."""


def shuffle_spec(**changes: Any) -> Spec:
    """A spec under shuffle privacy."""
    return make_spec({**SHUFFLE, **changes})


def parts(spec: Spec, *, version: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """The facts and the policy of a spec's first round, as plain data."""
    facts, policy = _open_round(type(spec), spec.model_dump_json(), version)
    return dict(facts), msgspec.msgpack.decode(policy)


@cache
def _open_round(kind: type[Spec], text: str, version: int) -> tuple[dict[str, Any], bytes]:
    """A round that many tests lie about takes the accountant a while."""
    spec = kind.model_validate_json(text)
    step = Schedule(spec).open(7, version)
    terms = step.policy.terms
    facts = {
        "experiment": spec.name,
        "version": version,
        "model": spec.privacy.model,
        "batch_size": step.batch_size,
        "sealed_size": sealed_size(step.policy),
        "public_key": KEY.public_key().public_bytes_raw(),
        "messages": terms.messages,
        "groups": terms.mechanism.groups,
        "least": step.min_reports,
        "deadline": int(NOW + step.seconds) if step.seconds else 0,
    }
    return facts, encode(step.policy)


def published(
    spec: Spec,
    *,
    mechanism: dict[str, Any] | None = None,
    terms: dict[str, Any] | None = None,
    draw: dict[str, Any] | None = None,
    policy: dict[str, Any] | None = None,
    round_: dict[str, Any] | None = None,
    shown_spec: Spec | None = None,
    version: int = 1,
    drain: Drain | None = None,
) -> bytes:
    """An encoded publication of a spec's first round, as any version of it; the changes are lies about it."""
    facts, fields = parts(spec, version=version)
    fields["terms"]["mechanism"] |= mechanism or {}
    fields["terms"] |= terms or {}
    if draw is not None:
        fields["draw"] |= draw
    body = (shown_spec or spec).model_dump_json().encode()
    round_of = Round(**(facts | (round_ or {})))
    return encode_publication(Publication(round_of, body, msgspec.msgpack.encode(fields | (policy or {})), drain=drain))


def draining(spec: Spec, version: int, end_time: float = 2e9) -> Drain:
    """Return the drain of a publication after the horizon: participants get the best arm so far."""
    schedule = Schedule(spec)
    return Drain(
        int(end_time), encode(schedule.open_next_step(schedule.open(7).state, version, 7, is_inviting=False).policy)
    )
