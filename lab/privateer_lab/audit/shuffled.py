"""Attacks on shuffled symbols: many batches, vectorised, scored by everything that a permuted batch tells."""

import numpy as np

from privateer.accounting.amplification import amplified_local_epsilon
from privateer.accounting.events import ShuffledResponse
from privateer.mechanisms.signed_symbol import SignedSymbol
from privateer.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case, Sampler
from privateer_lab.audit.evidence import Scores
from privateer_lab.audit.keyed import LAYOUT, PAIRS, Person, probabilities, told

_BATCH = 100
_BATCHES_AT_ONCE = 2000
_LOCAL_MAX = 12.0
_SAME_BIN, _OTHER_BIN = (0, 0.0), (2, 0.0)


def shuffled_cases(samples: int) -> list[Case]:
    """Alphabets of 2, 3 and 9 symbols, each with the companions that hide a person least of those tried."""
    cases = []
    for buckets, elsewhere, delta, pair, others in (
        (1, False, 0.1, "opposite rewards", _SAME_BIN),
        (1, False, 0.01, "opposite rewards", _SAME_BIN),
        (1, True, 0.1, "opposite rewards", _OTHER_BIN),
        (1, True, 0.1, "nothing to tell", _OTHER_BIN),
        (4, True, 0.1, "another bin", _OTHER_BIN),
        (4, True, 0.1, "opposite rewards", _OTHER_BIN),
    ):
        symbols = 2 * buckets + elsewhere
        local_epsilon = amplified_local_epsilon(1.0, delta, symbols, _BATCH, _LOCAL_MAX)
        mechanism = SignedSymbol(LAYOUT, local_epsilon, buckets, elsewhere)
        event = ShuffledResponse(local_epsilon, symbols, _BATCH)
        sample, name = _sampler(mechanism, PAIRS[pair], others), f"batches of {symbols} symbols, {pair}"
        cases.append(Case(name, "SignedSymbol", "shuffle", "tight", 1.0, delta, event, sample, max(2000, samples // 2)))
    return cases


def _sampler(mechanism: SignedSymbol, people: tuple[Person, Person], others: Person) -> Sampler:
    """The adversary knows that everybody else is like ``others``.

    With the order gone, a batch is as likely under a person as the mean, over its reports, of how much likelier each is
    from that person than from the others. No order enters this score; places are attacked along the wire.
    """

    def batches(who: int, count: int) -> Scores:
        one = mechanism.randomize(told(people[who], count), SecureNoise())
        rest = mechanism.randomize(told(others, count * (_BATCH - 1)), SecureNoise())
        batch = np.concatenate([one[:, None], rest.reshape(count, -1)], axis=1).ravel()
        reports = mechanism.parse(batch.tobytes())
        known = probabilities(mechanism, others, reports)
        left, right = (
            (probabilities(mechanism, person, reports) / known).reshape(count, -1).sum(axis=1) for person in people
        )
        # Sums differ in their last digits by the order of reports, which must not split equal scores.
        return np.asarray(np.round(np.log(left / right), 9))

    def sample(who: int, count: int) -> Scores:
        steps = [min(_BATCHES_AT_ONCE, count - start) for start in range(0, count, _BATCHES_AT_ONCE)]
        return np.concatenate([batches(who, step) for step in steps])

    return sample
