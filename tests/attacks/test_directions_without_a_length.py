"""A sender who chooses the coins could find some whose public direction had an infinite coordinate.

Coins are mixed by a bijection, so that they can be searched from the result backwards: 32 bits and a direction of 300
coordinates have some in one round of 15. One such report moved a sum by 2^33 times its share.
"""

import numpy as np

from privateer_core.mechanisms.local_symbol import REPORT
from privateer_core.mechanisms.vectors.vector_symbol import VectorSymbol
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import mix, normals_of

SEED, COINS, INDEX = 15316763083964532669, 521360233, 116
"""Found in a second: the 113th coordinate of this direction has the largest of all words."""


def test_one_report_moves_no_sum_by_more_than_its_share() -> None:
    mechanism = VectorSymbol.calibrated(Ball("l2", 1.0, 300), 8.0, SEED)
    word = mix(mix(np.array([COINS + SEED], np.uint64)) ^ mix(np.array([INDEX], np.uint64)))
    words = mix(word + np.arange(301, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95))
    assert words.max() >> np.uint64(11) == (1 << 53) - 1
    report = np.array([(COINS, 2 * INDEX + 1)], REPORT)
    total = mechanism.add(mechanism.empty(), mechanism.parse(report.tobytes()))
    assert np.abs(total.sums).max() <= 1 << 30


def test_every_word_has_a_number() -> None:
    words = np.array([0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 2049, (1 << 64) - 2048, (1 << 64) - 1], np.uint64)
    numbers = normals_of(words)
    assert np.isfinite(numbers).all()
    assert (np.diff(numbers) >= 0).all()
