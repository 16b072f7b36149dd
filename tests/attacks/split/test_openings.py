"""Openings: a report is verified once, in its round, with the shares that its device made.

Prio3 tells nothing as long as a report is verified once. Two verifications of one report, under two keys, nonces or
public shares, tell its vote.
"""

import os
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.wire.keys import publish_key
from privateer_core.wire.publication import Envelope, encode_envelope
from privateer_core.wire.share_keys import derive_sealing_key, sealing_public_key
from privateer_core.wire.shares import (
    Decision,
    SharedReport,
    ShareParty,
    ShareSeal,
    decode_closing,
    decode_opening_answer,
    share_context,
)
from tests.support.sealing import body_of, header_for
from tests.support.servers import assert_problem
from tests.support.shares import Shuffler, mechanism_of, sealer_of, shared_reports, signing_public_key, votes_of


async def setting(shuffler: Shuffler, count: int = 5) -> tuple[bytes, list[bytes]]:
    publication = await shuffler.api.publication()
    return publication, shared_reports(publication, count, signing_public_key(shuffler.key))


def answers(content: bytes) -> list[bytes]:
    decoded = decode_opening_answer(content)
    assert decoded is not None
    return decoded.answers


def opening_of(publication: bytes, reports: list[bytes]) -> bytes:
    parts = [SharedReport.parse(report).for_leader for report in reports]
    return encode_envelope(Envelope(header_for(publication), b"".join(parts)))


async def test_an_opening_has_one_answer_and_its_nonces_no_other(shuffler: Shuffler) -> None:
    publication, reports = await setting(shuffler)
    first = await shuffler.open(publication, reports)
    second = await shuffler.open(publication, reports)
    assert first.status_code == second.status_code == 200
    assert first.content == second.content
    for others in (reports[:1], [*reports, *shared_reports(publication, 1, signing_public_key(shuffler.key), 9)]):
        assert_problem(await shuffler.send_opening(opening_of(publication, others)), 403, "batch-refused")
    doubled = opening_of(publication, [*shared_reports(publication, 1, signing_public_key(shuffler.key), 8)] * 2)
    assert_problem(await shuffler.send_opening(doubled), 403, "batch-refused")


async def test_a_second_shuffler_gets_no_second_verification_under_its_key(shuffler: Shuffler, tmp_path: Any) -> None:
    """Another trusted shuffler would be another verification key: the claim and the nonces both keep it out."""
    publication, reports = await setting(shuffler)
    assert (await shuffler.open(publication, reports)).status_code == 200
    other = Shuffler(shuffler.api, Ed25519PrivateKey.generate())
    publish_key(other.key, tmp_path / "trusted" / "two.pub")
    body = opening_of(publication, reports)
    assert_problem(await other.send_opening(body), 403, "batch-refused")
    released = await shuffler.api.client.delete(
        "/experiments/test/shuffler", headers={"authorization": "Bearer token-of-the-tests"}
    )
    assert released.status_code < 300
    refused = await other.send_opening(opening_of(publication, reports[:3]))
    assert_problem(refused, 403, "batch-refused")


async def test_the_verification_key_is_of_both_servers_and_of_no_device(shuffler: Shuffler) -> None:
    """Planted: a server that could choose the helper's key in the opening would have two keys for a report."""
    publication, reports = await setting(shuffler)
    opened = shuffler.helper.open_batch(publication, body_of(publication, reports))
    reopened = shuffler.helper.open_batch(publication, body_of(publication, reports[:2]))
    assert opened.key == reopened.key
    assert derive_sealing_key(shuffler.key).public_key().public_bytes_raw() == sealing_public_key(
        signing_public_key(shuffler.key)
    )
    other = Shuffler(shuffler.api, Ed25519PrivateKey.generate()).helper
    assert other.open_batch(publication, body_of(publication, reports)).reports == ()


@pytest.mark.parametrize("part", [0, 16, 79], ids=["nonce", "public share", "end of the public share"])
async def test_a_changed_nonce_or_public_share_opens_at_neither_server(shuffler: Shuffler, part: int) -> None:
    publication, reports = await setting(shuffler)
    changed = bytearray(reports[0])
    changed[part] ^= 1
    opened = shuffler.helper.open_batch(publication, body_of(publication, [bytes(changed), *reports[1:]]))
    assert (len(opened.reports), opened.n_unopened) == (4, 1)
    response = await shuffler.send_opening(opening_of(publication, [bytes(changed), *reports[1:]]))
    assert [bool(answer) for answer in answers(response.content)] == [False, True, True, True, True]


async def test_a_report_of_a_round_opens_in_no_other(shuffler: Shuffler) -> None:
    publication, reports = await setting(shuffler, 20)
    response = await shuffler.open(publication, reports)
    assert (await shuffler.send_closing(shuffler.close(response.content))).status_code == 202
    second = await shuffler.api.publication()
    assert second != publication
    opened = shuffler.helper.open_batch(second, body_of(second, reports))
    assert (len(opened.reports), opened.n_unopened) == (0, 20)
    assert set(answers((await shuffler.send_opening(opening_of(second, reports))).content)) == {b""}


def reseal(publication: bytes, report: bytes, shuffler: Shuffler, **shares: bytes) -> bytes:
    """Return a report with other shares, sealed as its device would."""
    from privateer_core.wire.publication import decode_publication

    facts, parts = decode_publication(publication).round, SharedReport.parse(report)
    seal = ShareSeal(header_for(publication), facts.model, parts.nonce, parts.public)
    keys = {
        ShareParty.HELPER: sealing_public_key(signing_public_key(shuffler.key)),
        ShareParty.LEADER: facts.public_key,
    }
    sealed = {name: seal.seal(share, keys[ShareParty(name)], ShareParty(name)) for name, share in shares.items()}
    return b"".join(parts._replace(**sealed))


async def test_shares_that_do_not_parse_touch_no_other_report(shuffler: Shuffler) -> None:
    publication, reports = await setting(shuffler, 20)
    size = mechanism_of(publication).prio3.report_bytes - 16 - 64 - 64
    reports[3] = reseal(publication, reports[3], shuffler, leader=bytes(4) + b"\xff" * size)
    reports[5] = reseal(publication, reports[5], shuffler, leader=bytes(4) + bytes(size))
    reports[7] = reseal(publication, reports[7], shuffler, helper=os.urandom(64))
    reports[9] = os.urandom(len(reports[9]))
    reports[11] = reseal(publication, reports[11], shuffler, helper=b"short".ljust(63))[: len(reports[11])]
    reports[11] = reports[11].ljust(len(reports[12]), b"\0")
    response = await shuffler.open(publication, reports)
    closing = shuffler.close(response.content)
    receipt = await shuffler.send_closing(closing)
    assert (receipt.status_code, receipt.json()["accepted"]) == (202, 15)
    assert receipt.json()["refused"] == {"decryption-failed": 3, "out-of-range": 2}
    assert sorted(set(decode_closing(closing).decisions)) == [Decision.ACCEPTED, Decision.UNOPENED, Decision.INVALID]
    facts = await shuffler.api.facts()
    assert (facts["accepted"], facts["version"]) == (15, 2)


async def test_a_device_has_one_vote(shuffler: Shuffler) -> None:
    """A device that votes in all cells is refused, and the others are counted."""
    publication = await shuffler.api.publication()
    mechanism, key = mechanism_of(publication), signing_public_key(shuffler.key)
    sealer, votes = sealer_of(publication, key), votes_of(publication, 20)
    reports = [sealer.seal(votes[index : index + 1]) for index in range(20)]

    class Liar(type(mechanism)):  # type: ignore[misc] # a device with another encoding
        def encode(self, rows: Any) -> list[list[int]]:
            (bits,) = super().encode(rows)
            return [[1] * len(bits)] if len(bits) < 400 else [bits]

    liar = sealer_of(publication, key)
    liar._mechanism = Liar(**{name: getattr(mechanism, name) for name in mechanism.__struct_fields__})
    reports[4] = liar.seal(votes[4:5])
    response = await shuffler.open(publication, reports)
    receipt = (await shuffler.send_closing(shuffler.close(response.content))).json()
    assert receipt == {"accepted": 19, "refused": {"out-of-range": 1}, "closed": True}


async def test_a_device_that_tells_each_server_another_vote_is_refused(shuffler: Shuffler) -> None:
    """The public share is of one report, and the leader's share of another: their joint seeds differ."""
    publication, reports = await setting(shuffler, 4)
    mechanism, context = mechanism_of(publication), share_context(header_for(publication).digest)
    (bits,) = mechanism.encode(votes_of(publication, 1))
    nonce = os.urandom(16)
    first, second = (mechanism.prio3.shard(context, bits, nonce, os.urandom(128)) for _ in range(2))
    from privateer_core.wire.publication import decode_publication

    facts = decode_publication(publication).round
    seal = ShareSeal(header_for(publication), facts.model, nonce, first.public)
    helper = seal.seal(first.inputs[1], sealing_public_key(signing_public_key(shuffler.key)), ShareParty.HELPER)
    leader = seal.seal(bytes(4) + second.inputs[0], facts.public_key, ShareParty.LEADER)
    mixed = b"".join(SharedReport(nonce, first.public, helper, leader))
    response = await shuffler.open(publication, [mixed, *reports])
    decisions = decode_closing(shuffler.close(response.content)).decisions
    assert list(decisions) == [Decision.INVALID, *[Decision.ACCEPTED] * 4]


async def test_an_opening_of_other_bytes_is_refused(shuffler: Shuffler) -> None:
    publication, reports = await setting(shuffler, 21)
    for body in (
        encode_envelope(Envelope(header_for(publication), b"")),
        encode_envelope(Envelope(header_for(publication), b"x" * 1000)),
        opening_of(publication, reports),  # more than the round asks
        b"no envelope",
    ):
        assert_problem(await shuffler.send_opening(body), 403, "batch-refused")
    stranger = Shuffler(shuffler.api, Ed25519PrivateKey.generate())
    assert_problem(await stranger.send_opening(opening_of(publication, reports[:3])), 403, "batch-refused")
    batch = await shuffler.post("/batches", body_of(publication, reports[:20]), _batch())
    assert_problem(batch, 403, "batch-refused")


def _batch() -> Any:
    from privateer_core.wire.batch import BATCH

    return BATCH
