"""Defects that the audit must catch: each is planted in the code that makes, keeps or tells of reports."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from privateer_client import ReportStatus, delivery, session
from privateer_client.participation import Participation, Sealer
from privateer_client.person_choice import PersonChoice
from privateer_client.session import Session
from privateer_core.algorithms import algorithm
from privateer_core.errors import InputError, Malformed
from privateer_core.mechanisms import grouped_bit
from privateer_core.mechanisms.event_symbol import EventSymbol
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.mechanisms.vectors import vector_bits
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.privacy.trust import NoiseOrigin
from privateer_core.sampling.laplace import DiscreteLaplace
from privateer_core.sampling.normal import RoundedNormal
from privateer_core.sampling.randomness import RandomizedResponse, SecureNoise, SubsetResponse
from privateer_core.serving.http import report_endpoint
from privateer_core.wire.publication import Envelope, encode_envelope
from privateer_lab.audit.case import CHANNELS
from privateer_lab.simulation.scores import SeededNoise
from privateer_papers.paper_1.laplace_cells import LaplaceCells
from privateer_server.intake.accumulator import Accumulator
from privateer_server.rounds.states import NEXT, RoundEvent, RoundState
from privateer_shuffler.shuffle import ShuffledPlaces

Patch = Callable[[pytest.MonkeyPatch], None]


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    randomize = RandomizedResponse.randomize

    def weak(self: RandomizedResponse, truth: Any, noise: Any) -> Any:
        return randomize(RandomizedResponse(2 * self.epsilon, self.symbols), truth, noise)

    patch.setattr(RandomizedResponse, "randomize", weak)


def amplified_by_everybody(patch: pytest.MonkeyPatch) -> None:
    """A calibration that forgets the share of an arm: its bits count on the whole batch."""
    grouped_local_epsilon = grouped_bit.grouped_local_epsilon
    patch.setattr(grouped_bit, "grouped_local_epsilon", lambda *facts: grouped_local_epsilon(*facts[:-1], 1.0))


def left_out_reports_without_noise(patch: pytest.MonkeyPatch) -> None:
    """A device that weighing by propensities leaves out sends the symbol "elsewhere" as it is."""
    randomize = SignedSymbol.randomize

    def randomize_kept_alone(self: SignedSymbol, people: KeyedValues, noise: Any) -> Any:
        reports = randomize(self, people, noise)
        reports["symbol"][(people.keys < 0) & self.elsewhere] = 2 * self.buckets
        return reports

    patch.setattr(SignedSymbol, "randomize", randomize_kept_alone)


def half_the_noise_of_subsets(patch: pytest.MonkeyPatch) -> None:
    randomize = SubsetResponse.randomize

    def randomize_weakly(self: SubsetResponse, truth: Any, noise: Any) -> Any:
        return randomize(msgspec.structs.replace(self, epsilon=2 * self.epsilon), truth, noise)

    patch.setattr(SubsetResponse, "randomize", randomize_weakly)


def a_device_with_half_the_noise(patch: pytest.MonkeyPatch) -> None:
    """Only the client library is at fault."""
    init_participation = Participation.__init__

    def init_with_half_the_noise(self: Any, *arguments: Any, **named: Any) -> None:
        init_participation(self, *arguments, **named)
        terms = replace(self.policy.terms, mechanism=self.policy.terms.mechanism.with_less_noise(2.0))
        self.policy = replace(self.policy, terms=terms)

    patch.setattr(Participation, "__init__", init_with_half_the_noise)


def noise_in_the_own_bin_alone(patch: pytest.MonkeyPatch) -> None:
    """Paper 1's public code: no noise for bins that the person is not in."""
    randomize = LaplaceCells.randomize

    def randomize_own_key(self: LaplaceCells, people: KeyedValues, noise: Any) -> Any:
        noisy = randomize(self, people, noise).reshape(len(people), 2, self.layout.keys, self.layout.groups)
        is_own_key = np.arange(self.layout.keys)[None, :] == people.keys[:, None]
        return np.where(is_own_key[:, None, :, None], noisy, 0).reshape(len(people), -1).astype("<i4")

    patch.setattr(LaplaceCells, "randomize", randomize_own_key)


def coins_that_suit_the_context(patch: pytest.MonkeyPatch) -> None:
    """A device that draws coins until the sign of its bin is 1: the public sign then tells the bin."""
    randomize = SignedSymbol.randomize

    def choosy(self: SignedSymbol, people: KeyedValues, noise: Any) -> Any:
        coins = people.coins.copy()
        keys = np.maximum(people.keys, 0)
        for _ in range(20):
            wrong = self.layout.hashes(coins, keys) >> np.uint64(63) == 1
            coins[wrong] = np.random.default_rng().integers(0, 2**32, int(wrong.sum()), dtype=np.uint32)
        return randomize(self, msgspec.structs.replace(people, coins=coins), noise)

    patch.setattr(SignedSymbol, "randomize", choosy)


def coins_that_name_some_keys(patch: pytest.MonkeyPatch) -> None:
    """A device that draws coins until they have it name its key, if that is the first: they then tell the key."""
    randomize = EventSymbol.randomize

    def choosy(self: EventSymbol, people: KeyedValues, noise: Any) -> Any:
        coins = people.coins.copy()
        for _ in range(20):
            wrong = ~self.is_key_report(coins) & (people.keys == 0)
            coins[wrong] = np.random.default_rng().integers(0, 2**32, int(wrong.sum()), dtype=np.uint32)
        return randomize(self, msgspec.structs.replace(people, coins=coins), noise)

    patch.setattr(EventSymbol, "randomize", choosy)


def no_permutation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShuffledPlaces, "draw", lambda self: self._free.pop(0))


def a_size_that_tells_the_value(patch: pytest.MonkeyPatch) -> None:
    seal = Sealer.seal
    patch.setattr(Sealer, "seal", lambda self, report: seal(self, report.rstrip(b"\0")))


def noise_anew_for_every_retry(patch: pytest.MonkeyPatch) -> None:
    pay_and_seal, deliver = PersonChoice._pay_and_seal, session.deliver
    sealed: list[Callable[[], bytes]] = []

    def keep_seal(self: Any, opened: Participation, period: int, seal: Callable[[], bytes]) -> Any:
        sealed.append(lambda: encode_envelope(Envelope(opened.header, seal())))
        return pay_and_seal(self, opened, period, seal)

    def deliver_with_new_noise(*arguments: Any) -> Any:
        steps, answer = deliver(*arguments), None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            if isinstance(step, delivery.DeliveryRequest):
                step = step._replace(body=sealed[-1]())
            answer = yield step

    patch.setattr(PersonChoice, "_pay_and_seal", keep_seal)
    patch.setattr(session, "deliver", deliver_with_new_noise)


def a_seeded_generator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SecureNoise, "words", lambda _, count: SeededNoise(7).words(count))


def a_curator_with_half_the_noise(patch: pytest.MonkeyPatch) -> None:
    draw = RoundedNormal.draw
    patch.setattr(RoundedNormal, "draw", lambda self, count, noise: draw(self, count, noise) // 2)


def a_curator_with_one_noise_for_all(patch: pytest.MonkeyPatch) -> None:
    """Each number alone has the right law; differences of two are exact."""
    draw = RoundedNormal.draw
    patch.setattr(RoundedNormal, "draw", lambda self, count, noise: np.repeat(draw(self, 1, noise), count))


def a_curator_with_a_quarter_of_the_laplace_noise(patch: pytest.MonkeyPatch) -> None:
    draw = DiscreteLaplace.draw
    patch.setattr(DiscreteLaplace, "draw", lambda self, count, noise: draw(self, count, noise) // 4)


def half_the_bits(patch: pytest.MonkeyPatch) -> None:
    draw_binomial = vector_bits.draw_binomial

    def weak(count: int, trials: int, probability: float, noise: Any) -> Any:
        return draw_binomial(count, trials // 4, probability, noise) + (trials - trials // 4) // 2

    patch.setattr(vector_bits, "draw_binomial", weak)


def no_clipping(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ball, "clip", lambda _, vectors: vectors)


def a_header_that_tells_the_reward(patch: pytest.MonkeyPatch) -> None:
    report_steps = Session._report_choice_steps

    def report_with_length(self: Any, reward: float) -> Any:
        patch.setitem(delivery._HEADERS, "X-Length", str(len(repr(reward))))
        return report_steps(self, reward)

    patch.setattr(Session, "_report_choice_steps", report_with_length)


def no_report_of_nothing(patch: pytest.MonkeyPatch) -> None:
    report = Session._report_choice_steps

    def report_if_rewarded(self: Any, reward: float) -> Any:
        return (yield from report(self, reward)) if isinstance(reward, str) or reward > 0 else ReportStatus.ACCEPTED

    patch.setattr(Session, "_report_choice_steps", report_if_rewarded)


def a_round_that_closes_on_rewards(patch: pytest.MonkeyPatch) -> None:
    fget = vars(Accumulator)["state"].fget
    assert fget is not None

    def close_early(self: Any) -> RoundState:
        current = self._round
        trust = current.spec.privacy.trust
        if trust.noise is not NoiseOrigin.CURATOR or current.received <= 50:  # sums without noise have no such cells
            return fget(self)
        n_without_reward, n_with_reward = current.total.cells.sum(axis=(1, 2))
        return NEXT[self._state, RoundEvent.FILLED] if n_with_reward > n_without_reward else fget(self)

    patch.setattr(Accumulator, "state", property(close_early))


def a_server_that_logs_what_it_refuses(patch: pytest.MonkeyPatch) -> None:
    drop_invalid = Accumulator._drop_invalid

    def drop_and_log(self: Any, reports: Any) -> Any:
        logging.getLogger("privateer.server").info("counting %s", [report[16:] for report in reports])
        return drop_invalid(self, reports)

    patch.setattr(Accumulator, "_drop_invalid", drop_and_log)


def a_problem_that_quotes_the_body(patch: pytest.MonkeyPatch) -> None:
    def quoting(body: bytes) -> Any:
        raise Malformed(f"not an envelope: {body!r}")

    patch.setattr(report_endpoint, "decode_envelope", quoting)


def an_error_that_quotes_the_reward(patch: pytest.MonkeyPatch) -> None:
    policy = algorithm("partition").policy
    read = policy.read

    def quoting(self: Any, spec: Any, reward: Any) -> Any:
        try:
            return read(self, spec, reward)
        except InputError:
            raise InputError(f"not a reward: {reward}") from None

    patch.setattr(policy, "read", quoting)


NIGHTLY = pytest.mark.nightly
DEFECTS: list[Any] = [
    (half_the_noise, "SignedSymbol", "2 symbols, opposite rewards"),
    (half_the_noise, "GroupedBit", "batches whose arms are seen, arm 0, opposite rewards"),
    (amplified_by_everybody, "GroupedBit", "batches whose arms are seen, arm 0, opposite rewards"),
    (half_the_noise, "TieredSymbol", "tier 0, opposite rewards"),
    (half_the_noise, "EventSymbol", "events, opposite rewards"),
    (half_the_noise, "EventSymbol", "batches of events, opposite rewards"),
    (coins_that_name_some_keys, "EventSymbol", "events, another bin"),
    (half_the_noise, "SignedSymbol", "batches of 3 symbols at delta 0.1, nothing to tell"),
    (half_the_noise_of_subsets, "VectorSymbol", "64 symbols in l2"),
    (half_the_noise_of_subsets, "VectorSymbol", "permuted batch"),
    (half_the_noise_of_subsets, "VectorSymbol", "permuted batch, two messages"),
    (a_device_with_half_the_noise, "SignedSymbol", "sealed reports"),
    (noise_in_the_own_bin_alone, "LaplaceCells", "cells for epsilon 4, another bin"),
    (coins_that_suit_the_context, "SignedSymbol", "2 symbols, another bin"),
    (a_size_that_tells_the_value, CHANNELS, "sizes of sealed reports"),
    (noise_anew_for_every_retry, CHANNELS, "a retry sends the same bytes"),
    (a_seeded_generator, CHANNELS, "noise ignores seeds"),
    (a_curator_with_half_the_noise, "CentralSums", "release, opposite rewards"),
    (a_curator_with_half_the_noise, "SharedSums", "shares with normal noise, opposite rewards"),
    (a_curator_with_one_noise_for_all, "SharedSums", "shares with normal noise, another bin"),
    (a_curator_with_a_quarter_of_the_laplace_noise, "SharedTriples", "shares with Laplace noise, opposite rewards"),
    (a_curator_with_half_the_noise, "CentralVectors", "release in l2"),
    (a_curator_with_half_the_noise, "FeatureSums", "release, opposite values"),
    (a_curator_with_half_the_noise, "FeatureSums", "release, hardly negative"),
    (a_curator_with_half_the_noise, "RowSums", "release, opposite values"),
    (a_curator_with_half_the_noise, "RowSums", "release, another row"),
    (a_curator_with_half_the_noise, "GaussianVectors", "vectors in l2"),
    (a_curator_with_one_noise_for_all, "CentralSums", "release, another bin"),
    (half_the_bits, "BitVectors", "summed batch"),
    (no_clipping, "GaussianVectors", "vectors in l2"),
    (a_curator_with_a_quarter_of_the_laplace_noise, "CentralSums", "release with Laplace noise, another bin"),
    (half_the_noise, "partition", "local, opposite rewards"),
    (left_out_reports_without_noise, "partition", "sealed reports of a source, local"),
    (a_curator_with_a_quarter_of_the_laplace_noise, "partition", "release of a source, central"),
    (a_curator_with_a_quarter_of_the_laplace_noise, "partition", "central, another context"),
    (half_the_noise_of_subsets, "phased", "local, opposite rewards"),
    (a_curator_with_half_the_noise, "phased", "central, opposite rewards"),
    (no_clipping, "phased", "local-normal, opposite rewards"),
    (a_header_that_tells_the_reward, CHANNELS, "what the network shows, local"),
    (no_report_of_nothing, CHANNELS, "what the network shows, shuffle"),
    pytest.param(a_round_that_closes_on_rewards, CHANNELS, "what the network shows, central", marks=NIGHTLY),
    (a_server_that_logs_what_it_refuses, CHANNELS, "answers and logs of services"),
    (a_problem_that_quotes_the_body, CHANNELS, "answers and logs of services"),
    (an_error_that_quotes_the_reward, CHANNELS, "errors and logs of devices"),
]
"""A defect, whose mechanism is at fault, and the attack that catches it by itself.

Proofs of broken claims lie at least 5.8 standard deviations beyond the claims, measured over repeated attacks.
"""
