"""Closings: sums that a dishonest helper bends, and which of these the server refuses."""

import numpy as np
import pytest

from privateer_core.mechanisms.server_noise import STEPS
from privateer_core.vdaf.field import FIELD_128
from privateer_core.wire.shares import Decision, decode_closing
from tests.support.servers import assert_problem
from tests.support.shares import Shuffler, mechanism_of, shared_reports, signing_public_key


async def open_batch(shuffler: Shuffler, count: int = 20) -> tuple[bytes, bytes]:
    """Return a publication, and the leader's answer to a batch of ``count`` people."""
    publication = await shuffler.api.publication()
    response = await shuffler.open(publication, shared_reports(publication, count, signing_public_key(shuffler.key)))
    assert response.status_code == 200, response.text
    return publication, response.content


def shifted(share: bytes, votes: dict[int, float]) -> bytes:
    """Return a helper's share with votes added to cells."""
    numbers = FIELD_128.read(share)
    for cell, count in votes.items():
        numbers[cell] = (numbers[cell] + round(count * STEPS)) % FIELD_128.modulus
    return FIELD_128.encode(numbers)


async def test_a_batch_is_counted_once_and_learned_from(shuffler: Shuffler) -> None:
    _, answer = await open_batch(shuffler)
    closing = shuffler.close(answer)
    first, second = [await shuffler.send_closing(closing) for _ in range(2)]
    assert (first.status_code, first.json()) == (202, {"accepted": 20, "refused": {}, "closed": True})
    assert (second.status_code, second.json()) == (200, first.json())
    facts = await shuffler.api.facts()
    assert (facts["accepted"], facts["version"]) == (20, 2)
    assert await shuffler.api.metric("privateer_batches_total") == 1


async def test_a_second_closing_of_a_batch_is_too_late(shuffler: Shuffler) -> None:
    """A second noise on the same votes would reveal more than the promise."""
    _, answer = await open_batch(shuffler)
    first, second = shuffler.close(answer), shuffler.close(answer)
    assert first != second, "each has noise of its own: a shuffler stores the first"
    assert (await shuffler.send_closing(first)).status_code == 202
    assert_problem(await shuffler.send_closing(second), 409, "round-closed")


async def test_a_batch_of_one_is_released_with_both_noises(shuffler: Shuffler) -> None:
    """The helper's noise hides the vote from the server, and the server's noise hides it from everybody."""
    publication, answer = await open_batch(shuffler, 1)
    mechanism = mechanism_of(publication)
    share = FIELD_128.read(decode_closing(shuffler.close(answer)).share)
    other = FIELD_128.read(decode_closing(shuffler.close(answer)).share)
    differences = np.array([(left - right + FIELD_128.modulus // 2) % FIELD_128.modulus - FIELD_128.modulus // 2
                            for left, right in zip(share, other, strict=True)], dtype=float) / STEPS  # fmt: skip
    # Two draws of one server's noise: their difference has twice its variance, which is `variance` of both servers.
    ratio = differences.var() / mechanism.server_noise.variance
    assert 0.02 < ratio < 8, "31 cells or more: outside with a probability below 1e-6"
    assert np.count_nonzero(differences) > 0.9 * len(differences)
    receipt = await shuffler.send_closing(shuffler.close(answer))
    assert receipt.json() == {"accepted": 1, "refused": {}, "closed": True}


@pytest.mark.parametrize(("votes", "is_found"), [({0: 1e5}, True), ({0: -1e5}, True), ({0: 1e5, 1: -1e5}, False)])
async def test_a_false_sum_is_found_if_it_is_not_of_so_many_votes(
    shuffler: Shuffler, votes: dict[int, float], is_found: bool
) -> None:
    """Votes that are moved from a cell to another are not found: the helper can bend sums, as the docs say."""
    _, answer = await open_batch(shuffler)
    honest = decode_closing(shuffler.close(answer))
    response = await shuffler.send_closing(shuffler.close(answer, share=shifted(honest.share, votes)))
    if is_found:
        assert_problem(response, 403, "batch-refused")
        assert (await shuffler.api.facts())["version"] == 1
    else:
        assert response.status_code == 202


async def test_closings_that_no_helper_makes_are_refused(shuffler: Shuffler) -> None:
    _, answer = await open_batch(shuffler)
    honest = decode_closing(shuffler.close(answer))
    length = len(honest.share)
    for changes in (
        {"opening": bytes(32)},
        {"decisions": honest.decisions[:-1]},
        {"decisions": b"\x09" * 20},
        {"share": honest.share[:-1]},
        {"share": b"\xff" * length},
        {"share": b"\x00" * 15 + b"\x70" + honest.share[16:]},
    ):
        assert_problem(await shuffler.send_closing(shuffler.close(answer, **changes)), 403, "batch-refused")
    assert_problem(await shuffler.send_closing(b"no closing"), 403, "batch-refused")
    facts = await shuffler.api.facts()
    assert (facts["accepted"], facts["version"]) == (0, 1)
    assert (await shuffler.send_closing(shuffler.close(answer))).status_code == 202


async def test_a_helper_that_accepts_what_the_leader_could_not_open_is_refused(shuffler: Shuffler) -> None:
    publication = await shuffler.api.publication()
    reports = shared_reports(publication, 3, signing_public_key(shuffler.key))
    reports[1] = reports[1][:-1] + bytes([reports[1][-1] ^ 1])
    response = await shuffler.open(publication, reports)
    honest = decode_closing(shuffler.close(response.content))
    assert honest.decisions == bytes([Decision.ACCEPTED, Decision.UNOPENED, Decision.ACCEPTED])
    forged = shuffler.close(response.content, decisions=bytes(3))
    assert_problem(await shuffler.send_closing(forged), 403, "batch-refused")


async def test_a_batch_without_a_valid_vote_leaves_its_round_open(shuffler: Shuffler) -> None:
    publication = await shuffler.api.publication()
    reports = shared_reports(publication, 20, signing_public_key(shuffler.key))
    spoilt = [report[:-1] + bytes([report[-1] ^ 1]) for report in reports]
    response = await shuffler.open(publication, spoilt)
    receipt = await shuffler.send_closing(shuffler.close(response.content))
    assert receipt.json() == {"accepted": 0, "refused": {"decryption-failed": 20}, "closed": False}
    assert await shuffler.api.publication() == publication
    response = await shuffler.open(publication, shared_reports(publication, 20, signing_public_key(shuffler.key), 1))
    assert (await shuffler.send_closing(shuffler.close(response.content))).json()["accepted"] == 20
