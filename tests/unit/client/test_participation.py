"""A device verifies a publication, and refuses every changed term."""

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from privateer_client.participation import Participation
from privateer_core.errors import Malformed, PrivateerError, TermsRefused
from privateer_core.privacy.terms_verification import Limits
from privateer_core.wire.publication import Publication, decode_publication, encode_publication, hpke_info
from tests.support.publications import KEY, parts, published, shuffle_spec
from tests.support.specs import SHUFFLE, make_spec


def test_honest_terms_are_accepted_under_both_models() -> None:
    for spec in (make_spec(), shuffle_spec()):
        assert Participation(published(spec), "test", Limits()).is_report_requested


SHUFFLE_LIES = [
    ({"epsilon": 0.5}, "epsilon"),
    ({"delta": 1e-9}, "delta"),
    ({"batch_size": 100_000}, "batch_size"),
    ({"honest": 100_000}, "honest"),
    ({"calibration": "published"}, "calibration"),
    ({"model": "local"}, "model"),
]
MECHANISM_LIES = [
    ({"epsilon": 3.9}, "delta"),
    ({"epsilon": float("nan")}, "epsilon"),
    ({"epsilon": -1.0}, "epsilon"),
    ({"buckets": 0}, "symbols"),
    ({"buckets": 40_000}, "symbols"),
]


@pytest.mark.parametrize(("lie", "field"), SHUFFLE_LIES)
def test_every_lie_about_the_terms_is_refused(lie: dict[str, object], field: str) -> None:
    with pytest.raises(TermsRefused) as refusal:
        Participation(published(shuffle_spec(), terms=lie), "test", Limits())
    assert refusal.value.field == field


@pytest.mark.parametrize(("lie", "field"), MECHANISM_LIES)
def test_every_lie_about_the_mechanism_is_refused(lie: dict[str, object], field: str) -> None:
    with pytest.raises(TermsRefused) as refusal:
        Participation(published(shuffle_spec(), mechanism=lie), "test", Limits())
    assert refusal.value.field == field


def test_a_mechanism_of_another_trust_model_is_refused() -> None:
    """The lie: a plain record for the server, under a promise that a batch protects it."""
    curated = decode_publication(published(make_spec({"privacy.model": "none", "privacy.epsilon": None})))
    record = msgspec.msgpack.decode(curated.policy)["terms"]["mechanism"]
    with pytest.raises(PrivateerError):
        Participation(published(shuffle_spec(), terms={"mechanism": record}), "test", Limits())


@pytest.mark.parametrize("model", [{"privacy.model": "central", "privacy.delta": 1e-6}, SHUFFLE])
def test_reports_keyed_by_bin_are_refused_where_arms_are_seen(model: dict[str, object]) -> None:
    """The coins of a choice would be sent with the report, and reveal its arm."""
    hidden = published(make_spec(model | {"privacy.arm_visibility": "hidden"}), shown_spec=make_spec(model))
    with pytest.raises(PrivateerError):
        Participation(hidden, "test", Limits(allow_central=True))
    visible = published(make_spec(model), shown_spec=make_spec(model | {"privacy.arm_visibility": "hidden"}))
    with pytest.raises(PrivateerError):
        Participation(visible, "test", Limits(allow_central=True, arm_visibility="hidden"))


@pytest.mark.parametrize(
    ("spec", "says"), [(b"[1]", "not a spec"), (b"\xff", "not a spec"), (b'{"algorithm": {}}', "algorithm.name")]
)
def test_a_spec_that_the_device_does_not_know_is_refused(spec: bytes, says: str) -> None:
    publication = decode_publication(published(make_spec()))
    body = encode_publication(Publication(publication.round, spec, publication.policy))
    with pytest.raises(Malformed, match=says):
        Participation(body, "test", Limits())


def test_a_layout_with_a_negative_seed_is_refused() -> None:
    """Coins could not be hashed with it once the report is paid for."""
    _, policy = parts(make_spec())
    layout = policy["terms"]["mechanism"]["layout"]
    Participation(published(make_spec(), mechanism={"layout": layout}), "test", Limits())
    with pytest.raises(Malformed):
        Participation(published(make_spec(), mechanism={"layout": layout | {"seed": -1}}), "test", Limits())


def test_a_local_report_that_costs_more_than_promised_is_refused() -> None:
    with pytest.raises(TermsRefused) as refusal:
        Participation(published(make_spec(), mechanism={"epsilon": 1.5}), "test", Limits())
    assert refusal.value.field == "delta"


@pytest.mark.parametrize(
    "lie", [{"batch_size": 2000}, {"model": "local"}, {"version": 2}, {"experiment": "other"}, {"sealed_size": 80}]
)
def test_every_lie_about_the_round_is_refused(lie: dict[str, object]) -> None:
    with pytest.raises(TermsRefused):
        Participation(published(shuffle_spec(), round_=lie), "test", Limits())


def test_a_smaller_batch_than_the_specs_is_refused() -> None:
    batch = shuffle_spec().privacy.min_batch - 1
    lies = {"terms": {"batch_size": batch}, "round_": {"batch_size": batch, "least": batch}}
    with pytest.raises(PrivateerError):
        Participation(published(shuffle_spec(), **lies), "test", Limits())


def test_a_key_that_cannot_be_sealed_to_is_refused() -> None:
    """A point of low order would fail at sealing, after the report is paid for."""
    with pytest.raises(Malformed):
        Participation(published(make_spec(), round_={"public_key": bytes(32)}), "test", Limits())


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (Limits(epsilon=0.9), "epsilon"),
        (Limits(delta=1e-9), "delta"),
        (Limits(local_epsilon=1.5), "local_epsilon"),
        (Limits(honest_fraction=0.5), "honest_fraction"),
        (Limits(min_batch=100_000), "batch_size"),
    ],
)
def test_the_devices_limits_are_enforced(limits: Limits, field: str) -> None:
    with pytest.raises(TermsRefused) as refusal:
        Participation(published(shuffle_spec()), "test", limits)
    assert refusal.value.field == field
    assert "do not take part" in str(refusal.value)


def test_reports_have_one_size_and_open_only_with_their_binding() -> None:
    participation = Participation(published(make_spec()), "test", Limits())
    rng = np.random.default_rng(1)
    contexts, coins = rng.random((50, 2)), participation.draw_coins(50)
    sealed = participation.make_reports(contexts, coins, participation.decide(contexts, coins), rng.random(50))
    assert {len(report) for report in sealed} == {participation.round.sealed_size}
    suite = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
    info = hpke_info(participation.header, "local")
    opened = [suite.decrypt(report, KEY, info=info) for report in sealed]
    assert len({plain[:16] for plain in opened}) == 50
    other = msgspec.structs.replace(participation.header, version=2)
    with pytest.raises(Exception, match=r".*"):
        suite.decrypt(sealed[0], KEY, info=hpke_info(other, "local"))


def test_coins_are_fresh() -> None:
    participation = Participation(published(make_spec()), "test", Limits())
    assert len(set(participation.draw_coins(1000).tolist())) > 990


@pytest.mark.parametrize("spec", [b"", b"\xff\xfe", b"{", b"[" * 100_000, b'"text"', b"[]"])
def test_a_hostile_spec_raises_a_privateer_error(spec: bytes) -> None:
    publication = decode_publication(published(make_spec()))
    body = encode_publication(msgspec.structs.replace(publication, spec=spec))
    with pytest.raises(PrivateerError):
        Participation(body, "test", Limits())


def test_a_device_randomizes_by_no_mechanism_of_the_lab() -> None:
    spec = make_spec({"algorithm.name": "paper-1-ldpmab", "privacy.epsilon": 16.0})
    with pytest.raises(TermsRefused) as refusal:
        Participation(published(spec), "test", Limits(epsilon=16, local_epsilon=16))
    assert refusal.value.field == "calibration"
