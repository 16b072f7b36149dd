"""The policies that an experiment published before, about whose decisions late reports are."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

import msgspec
import numpy as np

from privateer_core.algorithms import parse_spec
from privateer_core.arrays import Array
from privateer_core.codec import decode
from privateer_core.policies.gain_policy import GainPolicy
from privateer_core.policies.policy import Policy
from privateer_core.wire.publication import decode_publication
from privateer_server.rounds.open_round import OpenRound, RoundFacts, read_policy
from privateer_server.rounds.schedule import PolicyMix
from privateer_server.store.store import Store

_N_REPORT_TIMES: Final = 16
_MIN_SHARE: Final = 1e-3  # shares below this are left out
_MAX_CACHED_POLICIES: Final = 1024
_MAX_CACHED_BYTES: Final = 64 << 20
"""Policies cached in memory, and bytes of their publications, so that old reports do not read them each time."""


def shares_by_policy(
    starts: Sequence[float], begin: float, end: float, delay_cdf: Callable[[Array], Array], last_choice: float = np.inf
) -> Array:
    """Return the share of a round's reports that is about the decisions of each policy, (policies,); they sum to 1.

    Choices, and reports while the round is open, are assumed to come at constant rates.

    starts: when each policy began to decide, increasing; each decides until the next one starts.
    begin, end: when the round began and ended to take reports.
    delay_cdf: the distribution function of the delay between choice and report; 0 for negative times.
    last_choice: when the last choice was made.
    """
    report_times = begin + (end - begin) * (np.arange(_N_REPORT_TIMES) + 0.5) / _N_REPORT_TIMES
    bounds = np.minimum(np.append(starts, np.inf), last_choice)
    delay_probabilities = delay_cdf(report_times[:, None] - bounds)
    shares = (delay_probabilities[:, :-1] - delay_probabilities[:, 1:]).sum(axis=0)
    if shares.sum() <= 0:
        return np.append(np.zeros(len(starts) - 1), 1.0)
    shares = np.where(shares < _MIN_SHARE * shares.sum(), 0.0, shares)
    return np.asarray(shares / shares.sum())


class EarlierPolicies:
    """The published policies of all experiments, from the store or a cache."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock, self._cached_bytes = store, Lock(), 0
        self._cache: OrderedDict[tuple[str, int], tuple[Policy | None, int]] = OrderedDict()

    def find(self, name: str, version: int) -> Policy | None:
        """Return the policy of a version, if it was published; from the cache if possible."""
        with self._lock:
            if (name, version) in self._cache:
                self._cache.move_to_end((name, version))
                return self._cache[name, version][0]
        policy, size = self._read_policy(name, version)
        with self._lock:
            if (name, version) not in self._cache:
                self._cache[name, version] = policy, size
                self._cached_bytes += size
            while len(self._cache) > _MAX_CACHED_POLICIES or self._cached_bytes > _MAX_CACHED_BYTES:
                self._cached_bytes -= self._cache.popitem(last=False)[1][1]
        return policy

    def _read_policy(self, name: str, version: int) -> tuple[Policy | None, int]:
        body = self._store.publication(name, version)
        if body is None:
            return None, 0
        publication = decode_publication(body)
        policy = read_policy(parse_spec(msgspec.json.decode(publication.spec)), publication)
        # Participants of a gain measurement report to their own round alone.
        return None if isinstance(policy, GainPolicy) else policy, len(body)

    def find_decisions(self, closed: OpenRound, now: float) -> PolicyMix:
        """Return the policies that decided for a round's reports, with their shares; empty if that does not matter.

        Every report comes when the conversion window of its choice is over, so the shares follow from the times.
        """
        name, policy = closed.round.experiment, closed.step.policy
        window = closed.spec.experiment.conversion_window_seconds
        if not window or policy.cohort or not policy.is_mixture or policy.draw is not None:
            return ()
        starts: dict[int, float] = {}
        for row in self._store.rounds(name):
            facts = decode(row.facts, RoundFacts)
            # While late reports alone are taken, new choices are not reported.
            if not (facts.cohort or facts.is_draining) and policy.accepts_decisions_of(row.version):
                starts[row.version] = facts.opened

        def delay_cdf(delays: Array) -> Array:
            return np.asarray(delays >= window, np.float64)

        shares = shares_by_policy(list(starts.values()), closed.opened_at, now, delay_cdf).tolist()
        mix = [(self.find(name, version), share) for version, share in zip(starts, shares, strict=True) if share]
        return [(earlier, share) for earlier, share in mix if earlier is not None and earlier.terms.batch_size]
