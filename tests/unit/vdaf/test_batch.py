"""Many reports verified at once give the bytes of each verified single."""

from dataclasses import replace

import numpy as np
import pytest

from privateer_core.vdaf import limbs
from privateer_core.vdaf.batch import Report, VerifiedBatch, verify_many
from privateer_core.vdaf.circuits import ball, box
from privateer_core.vdaf.field import FIELD_64, FIELD_128
from privateer_core.vdaf.prio3 import InvalidProof, Prio3
from tests.unit.vdaf.votes import ALGORITHM, CONTEXT, KEY, KINDS, Kind, encode_numbers, make_nonces, shard

PRIME = FIELD_128.modulus


def make_reports(prio3: Prio3, votes: list[tuple[int, ...]]) -> tuple[list[Report], list[Report]]:
    """Return what both servers get of these people."""
    nonces = make_nonces(len(votes))
    shares = [shard(prio3, bits, nonce) for bits, nonce in zip(votes, nonces, strict=True)]
    leader, helper = (
        [Report(nonce, report.public, report.inputs[party]) for nonce, report in zip(nonces, shares, strict=True)]
        for party in (0, 1)
    )
    return leader, helper


def is_accepted(prio3: Prio3, leader: VerifiedBatch, helper: VerifiedBatch, index: int) -> bool:
    verifiers = [batch.verifiers[index] for batch in (leader, helper)]
    if None in verifiers:
        return False
    try:
        message = prio3.decide(CONTEXT, [verifier for verifier in verifiers if verifier is not None])
    except InvalidProof:
        return False
    return leader.joint_seeds[index] == helper.joint_seeds[index] == message


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("party", [0, 1])
def test_batch_verification_equals_single_verification(kind: Kind, party: int) -> None:
    prio3 = kind.prio3
    reports = make_reports(prio3, [bits for bits, _ in kind.votes] * 5)[party]
    batch = verify_many(prio3, KEY, CONTEXT, party, reports)
    single = [prio3.verify(KEY, CONTEXT, party, report.nonce, report.public, report.share) for report in reports]
    assert batch.verifiers == [verifier for _, verifier in single]
    assert batch.joint_seeds == [verification.joint_seed for verification, _ in single]
    is_third = [index % 3 == 0 for index in range(len(reports))]
    outputs = [verification.output for (verification, _), is_in in zip(single, is_third, strict=True) if is_in]
    assert batch.add_up(is_third) == [sum(column) % PRIME for column in zip(*outputs, strict=True)]


def test_a_spoilt_report_of_500_touches_no_other() -> None:
    """Three are spoilt: a wrong proof, a number above the prime, and a share that is too short."""
    prio3 = Prio3(box(3, 7), ALGORITHM)
    rows = np.random.default_rng(7).integers(0, 8, size=(500, 3))
    leader, helper = make_reports(prio3, [encode_numbers(row, 7) for row in rows.tolist()])
    share = leader[17].share
    leader[17] = replace(leader[17], share=bytes([share[0] ^ 1]) + share[1:])
    leader[230] = replace(leader[230], share=b"\xff" * 16 + leader[230].share[16:])
    helper[499] = replace(helper[499], share=helper[499].share[:-1])
    batches = [verify_many(prio3, KEY, CONTEXT, party, reports) for party, reports in enumerate((leader, helper))]
    accepted = [is_accepted(prio3, batches[0], batches[1], index) for index in range(500)]
    assert [index for index, is_in in enumerate(accepted) if not is_in] == [17, 230, 499]
    sums = [sum(pair) % PRIME for pair in zip(*(batch.add_up(accepted) for batch in batches), strict=True)]
    assert sums == rows[accepted].sum(axis=0).tolist()


def test_batch_verification_refuses_circuits_that_it_would_sum_wrong() -> None:
    """Weights of 2^36 and more overflowed without a sign: honest votes were refused, or summed up wrong."""
    large = [Prio3(circuit, ALGORITHM) for circuit in (box(4, (1 << 40) - 1), ball(2, (1 << 18) - 1, 1 << 37))]
    others = [Prio3(replace(box(3, 7), field=FIELD_64), ALGORITHM), Prio3(box(3, 7), ALGORITHM, n_proofs=2)]
    for prio3 in (*large, *others):
        with pytest.raises(ValueError, match="one by one"):
            verify_many(prio3, KEY, CONTEXT, 0, [])


EDGES = [0, 1, 2, (1 << 26) - 1, 1 << 26, (1 << 52) + 1, 1 << 104, (1 << 128) - (28 << 64), PRIME - 1, PRIME - 2]


def random_numbers(n: int) -> list[int]:
    rng = np.random.default_rng(128)
    return [int.from_bytes(rng.bytes(16), "little") % PRIME for _ in range(n)]


def test_limbs_multiply_as_whole_numbers_do() -> None:
    numbers = [*EDGES, *random_numbers(200)]
    row = limbs.to_limbs([numbers])
    products = limbs.multiply(row[:, 0, :, None], row[:, 0, None, :])
    assert limbs.to_integers(products) == [[left * right % PRIME for right in numbers] for left in numbers]
    squares = limbs.multiply(products, products)
    assert limbs.to_integers(squares) == [[(left * right) ** 2 % PRIME for right in numbers] for left in numbers]


def test_limbs_add_up_as_many_products_as_they_say() -> None:
    """The largest numbers, as many times as `MOST_ADDED`: a limb more would overflow 63 bits."""
    largest = limbs.to_limbs([[PRIME - 1] * limbs.MOST_ADDED])
    assert limbs.to_integers(limbs.fold(limbs.dot(largest, largest, "nk,nk->n"))[..., None]) == [[limbs.MOST_ADDED]]
    numbers = random_numbers(limbs.MOST_ADDED)
    row = limbs.to_limbs([numbers])
    total = sum(number * number for number in numbers) % PRIME
    assert limbs.to_integers(limbs.fold(limbs.dot(row, row, "nk,nk->n"))[..., None]) == [[total]]


def test_limbs_of_sums_and_differences_are_reduced() -> None:
    row = limbs.to_limbs([[*EDGES]])
    for factor in (-3, -1, 0, 1, 1000):
        assert limbs.to_integers(row * factor) == [[number * factor % PRIME for number in EDGES]]
    assert limbs.read_numbers(FIELD_128.encode(EDGES), len(EDGES)).shape == (5, 1, len(EDGES))


def test_the_largest_weights_are_summed_up_exactly() -> None:
    """A maximum below 2^36 is still summed up in a batch, of the largest and the smallest numbers."""
    maximum = limbs.MOST_WEIGHT - 1
    prio3 = Prio3(box(2, maximum), ALGORITHM)
    reports, _ = make_reports(prio3, [encode_numbers((maximum, 0), maximum)] * 9)
    batch = verify_many(prio3, KEY, CONTEXT, 0, reports)
    single = [prio3.verify(KEY, CONTEXT, 0, report.nonce, report.public, report.share) for report in reports]
    assert batch.verifiers == [verifier for _, verifier in single]
    outputs = zip(*(verification.output for verification, _ in single), strict=True)
    assert batch.add_up([True] * 9) == [sum(column) % PRIME for column in outputs]
