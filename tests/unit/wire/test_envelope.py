"""Sealed reports, and the keys that they are sealed and signed with."""

import contextlib
import logging
import time

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from privateer_core.errors import (
    Malformed,
    RoundClosed,
    RoundUnknown,
    SpecError,
    WrongDigest,
    WrongEndpoint,
    WrongKey,
    WrongSize,
)
from privateer_core.wire.keys import (
    TrustedKeys,
    _FileStamp,
    load_or_create_key,
    public_hex,
    publish_key,
    read_public_keys,
    signing_key_id,
)
from privateer_core.wire.publication import (
    REPORTS_PER_BODY_MAX,
    Envelope,
    Header,
    Round,
    check_header,
    decode_envelope,
    encode_envelope,
    hpke_info,
    report_header,
    split_sealed,
)

DIGEST = b"d" * 32
ROUND = Round("spring", 3, "shuffle", 100, 96, bytes(range(32)))
HEADER = report_header(ROUND, DIGEST)

headers = st.builds(
    Header,
    experiment=st.text(max_size=20),
    version=st.integers(1, 2**62),
    key_id=st.binary(min_size=8, max_size=8),
    digest=st.binary(min_size=32, max_size=32),
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=10,
)


@given(headers, st.binary(max_size=300))
def test_an_envelope_survives_the_wire(header, sealed):
    envelope = Envelope(header, sealed)
    assert decode_envelope(encode_envelope(envelope)) == envelope


@given(st.binary(max_size=300))
def test_noise_is_refused_as_malformed(body):
    with pytest.raises(Malformed):
        decode_envelope(body)


@given(plain)
def test_other_messages_are_refused_as_malformed(message):
    with pytest.raises(Malformed):
        decode_envelope(msgspec.msgpack.encode(message))


@given(st.data())
def test_a_damaged_envelope_is_refused_as_malformed_or_another_one(data):
    envelope = Envelope(HEADER, b"s" * 96)
    body = bytearray(encode_envelope(envelope))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(Malformed):
        assert decode_envelope(bytes(body)) != envelope


@pytest.mark.parametrize(
    "message",
    [
        [["spring", 3, b"short", DIGEST], b"sealed"],
        [["spring", 3, HEADER.key_id, b"short"], b"sealed"],
        [["spring", 0, HEADER.key_id, DIGEST], b"sealed"],
        [["spring", 3, HEADER.key_id, DIGEST, "more"], b"sealed"],
        [["spring", 3, HEADER.key_id, DIGEST], b"sealed", "more"],
        [["spring", 3, HEADER.key_id, DIGEST]],
    ],
)
def test_fields_of_the_wrong_size_or_number_are_refused(message):
    with pytest.raises(Malformed):
        decode_envelope(msgspec.msgpack.encode(message))


def test_nesting_without_end_is_refused():
    with pytest.raises(Malformed):
        decode_envelope(b"\x92" * 100_000)


def test_the_binding_names_purpose_model_and_every_field_of_the_header():
    others = [
        Header("summer", 3, HEADER.key_id, DIGEST),
        Header("spring", 4, HEADER.key_id, DIGEST),
        Header("spring", 3, b"k" * 8, DIGEST),
        Header("spring", 3, HEADER.key_id, b"e" * 32),
    ]
    bindings = {hpke_info(header, "shuffle") for header in [HEADER, *others]} | {hpke_info(HEADER, "local")}
    assert len(bindings) == 6
    assert all(b"privateer/report/1" in info for info in bindings)


def test_the_header_of_the_round_passes():
    check_header(HEADER, ROUND, DIGEST, "shuffler")


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        (Header("spring", 2, HEADER.key_id, DIGEST), RoundClosed),
        (Header("spring", 4, HEADER.key_id, DIGEST), RoundUnknown),
        (Header("spring", 3, b"k" * 8, DIGEST), WrongKey),
        (Header("spring", 3, HEADER.key_id, b"e" * 32), WrongDigest),
    ],
)
def test_a_header_for_another_round_is_refused(header, refusal):
    with pytest.raises(refusal):
        check_header(header, ROUND, DIGEST, "shuffler")


def test_an_experiment_that_is_over_takes_nothing():
    over = msgspec.structs.replace(ROUND, batch_size=0)
    with pytest.raises(RoundClosed):
        check_header(HEADER, over, DIGEST, "shuffler")


@pytest.mark.parametrize(("model", "endpoint"), [("shuffle", "server"), ("local", "shuffler"), ("central", "shuffler")])
def test_every_report_has_one_endpoint(model, endpoint):
    with pytest.raises(WrongEndpoint):
        check_header(HEADER, msgspec.structs.replace(ROUND, model=model), DIGEST, endpoint)


@given(st.integers(1, 20))
def test_sealed_reports_are_split_in_order(count):
    reports = [bytes([index]) * 96 for index in range(count)]
    assert split_sealed(Envelope(HEADER, b"".join(reports)), ROUND) == reports


@pytest.mark.parametrize("size", [0, 1, 95, 97, 96 * 3 + 1, 96 * (REPORTS_PER_BODY_MAX + 1)])
def test_sealed_bytes_of_another_size_are_refused(size):
    with pytest.raises(WrongSize):
        split_sealed(Envelope(HEADER, bytes(size)), ROUND)


def test_trusted_keys_of_files_and_directories(tmp_path):
    keys = [Ed25519PrivateKey.generate().public_key() for _ in range(3)]
    raw = [key.public_bytes_raw().hex() for key in keys]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.pub").write_text(raw[0])
    (tmp_path / "folder" / "b.pub").write_text(raw[1] + "\n")
    (tmp_path / "folder" / "ignored.txt").write_text(raw[2])
    (tmp_path / "single").write_text(raw[2])
    trusted = TrustedKeys([tmp_path / "folder", tmp_path / "single", tmp_path / "missing"])
    assert list(trusted.by_id()) == [signing_key_id(key) for key in keys]
    (tmp_path / "single").unlink()
    assert list(trusted.by_id()) == [signing_key_id(key) for key in keys[:2]]


def test_keys_are_read_again_when_a_file_has_changed(tmp_path, monkeypatch):
    """Once files are older than a tick of their clock, they are read when something about them changes."""
    keys = [Ed25519PrivateKey.generate().public_key() for _ in range(3)]
    raw, ids = [key.public_bytes_raw().hex() for key in keys], [signing_key_id(key) for key in keys]
    monkeypatch.setattr("privateer_core.wire.keys._TICK_NANOSECONDS", -(10**12))
    read = []
    monkeypatch.setattr(
        "privateer_core.wire.keys.read_public_keys", lambda path: (read.append(path), read_public_keys(path))[1]
    )
    trusted, key_file = TrustedKeys([tmp_path]), tmp_path / "one.pub"
    assert trusted.by_id() == {}
    key_file.write_text(raw[0])
    assert [list(trusted.by_id()) for _ in range(3)] == [ids[:1]] * 3
    assert len(read) == 1
    time.sleep(0.02)
    key_file.write_text(raw[1])
    assert list(trusted.by_id()) == [ids[1]]
    (tmp_path / "new").write_text(raw[2])
    (tmp_path / "new").replace(key_file)
    assert list(trusted.by_id()) == [ids[2]]
    key_file.unlink()
    assert trusted.by_id() == {}


def test_a_file_changed_within_a_clock_tick_is_read_every_time(tmp_path, monkeypatch):
    """Two changes within a tick of the clock of files look the same."""
    keys = [Ed25519PrivateKey.generate().public_key() for _ in range(2)]
    trusted, key_file = TrustedKeys([tmp_path]), tmp_path / "one.pub"
    monkeypatch.setattr("privateer_core.wire.keys._file_stamp", lambda _: _FileStamp(1, time.time_ns()))
    for key in keys:
        key_file.write_text(key.public_bytes_raw().hex())
        assert list(trusted.by_id()) == [signing_key_id(key)]


def test_a_file_without_a_key_is_logged_once(tmp_path, caplog):
    (tmp_path / "broken.pub").write_text("no key")
    trusted = TrustedKeys([tmp_path])
    with caplog.at_level(logging.WARNING):
        assert trusted.by_id() == {}
        assert trusted.by_id() == {}
    assert caplog.messages == ["broken.pub does not hold public keys (64 hex digits each)"]


def test_an_organisation_has_a_file_with_all_its_keys(tmp_path):
    keys = [Ed25519PrivateKey.generate().public_key() for _ in range(3)]
    raw = [key.public_bytes_raw().hex() for key in keys]
    (tmp_path / "first-trust.pub").write_text(f"{raw[0]}\n{raw[1]}\n")
    (tmp_path / "other.pub").write_text(raw[2])
    trusted = TrustedKeys([tmp_path])
    assert [trusted.organisation(signing_key_id(key)) for key in keys] == ["first-trust", "first-trust", "other"]
    assert len(trusted.by_id()) == 3
    assert trusted.organisation("0" * 16) == ""


def load_key(folder):
    """The key of a shuffler."""
    return load_or_create_key(folder / "shuffler.key", "PRIVATEER_DATA")


def test_a_key_is_made_once(tmp_path):
    assert public_hex(load_key(tmp_path)) == public_hex(load_key(tmp_path))


def test_generated_keys_differ(tmp_path):
    (tmp_path / "other").mkdir()
    assert public_hex(load_key(tmp_path)) != public_hex(load_key(tmp_path / "other"))


def test_only_the_owner_may_read_the_key(tmp_path):
    load_key(tmp_path)
    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {"shuffler.key": 0o600}


@pytest.mark.parametrize("content", ["", "no key", "ab" * 31, "ab" * 33])
def test_a_file_without_a_key_is_an_error(tmp_path, content):
    (tmp_path / "shuffler.key").write_text(content)
    with pytest.raises(SpecError, match="holds no key") as caught:
        load_key(tmp_path)
    assert caught.value.field == "PRIVATEER_DATA"
    assert (tmp_path / "shuffler.key").read_text() == content


def test_a_key_that_cannot_be_read_is_not_called_damaged(tmp_path):
    (tmp_path / "shuffler.key").mkdir()
    with pytest.raises(SpecError, match=r"shuffler\.key cannot be read: Is a directory") as caught:
        load_key(tmp_path)
    assert "delete" not in str(caught.value.remedy)


def test_the_public_key_is_written_where_the_server_looks(tmp_path):
    key, path = load_key(tmp_path), tmp_path / "trusted" / "one.pub"
    publish_key(key, path)
    assert bytes.fromhex(path.read_text()) == key.public_key().public_bytes_raw()
    assert path.stat().st_mode & 0o777 == 0o644


def test_an_old_public_key_is_replaced_and_the_right_one_left_alone(tmp_path):
    key, path = load_key(tmp_path), tmp_path / "one.pub"
    path.write_text("of another shuffler")
    publish_key(key, path)
    st_ino = path.stat().st_ino
    publish_key(key, path)
    assert path.read_text() == public_hex(key) + "\n"
    assert path.stat().st_ino == st_ino


def test_a_key_half_written_is_made_again(tmp_path):
    (tmp_path / ".shuffler.key.new").write_text("abc")
    load_key(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["shuffler.key"]
