"""The policies that an experiment has published before: late reports may be about what they decided."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms import parse_spec
from privateer_core.codec import decode
from privateer_core.policies.gain_policy import GainPolicy
from privateer_core.policies.policy import Policy
from privateer_core.wire.publication import decode_publication
from privateer_server.rounds.loop import Decided
from privateer_server.rounds.open_round import OpenRound, RoundFacts, read_policy
from privateer_server.store.store import Store

Array = NDArray[np.float64]
_TIMES: Final = 16
_LEAST: Final = 1e-3
"""Shares below this are left out."""
_KEPT: Final = 1024
_BYTES: Final = 64 << 20
"""Policies kept in memory, and bytes of their publications: who sends old reports does not have them read each time."""


def shares_by_policy(
    opened: Sequence[float], opens: float, closes: float, delayed: Callable[[Array], Array], ends: float = np.inf
) -> Array:
    """Return the share of a round's reports that is about the decisions of each policy, (policies,); they sum to 1.

    As many people choose at any time, and as many report while the round is open.

    opened: when each policy began to decide, rising; each decides until the next one begins.
    opens, closes: when the round began and ended to take reports.
    delayed: the probability that a report comes at most so long after its choice; 0 for negative times.
    ends: when the last choice was made.
    """
    reported = opens + (closes - opens) * (np.arange(_TIMES) + 0.5) / _TIMES
    bounds = np.minimum(np.append(opened, np.inf), ends)
    since = delayed(reported[:, None] - bounds)
    shares = (since[:, :-1] - since[:, 1:]).sum(axis=0)
    if shares.sum() <= 0:
        return np.append(np.zeros(len(opened) - 1), 1.0)
    shares = np.where(shares < _LEAST * shares.sum(), 0.0, shares)
    return np.asarray(shares / shares.sum())


class EarlierPolicies:
    """The published policies of all experiments."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock, self._bytes = store, Lock(), 0
        self._kept: OrderedDict[tuple[str, int], tuple[Policy | None, int]] = OrderedDict()

    def find(self, name: str, version: int) -> Policy | None:
        """Return the policy of a version, if it was published."""
        with self._lock:
            if (name, version) in self._kept:
                self._kept.move_to_end((name, version))
                return self._kept[name, version][0]
        found, size = self._read(name, version)
        with self._lock:
            if (name, version) not in self._kept:
                self._kept[name, version] = found, size
                self._bytes += size
            while len(self._kept) > _KEPT or self._bytes > _BYTES:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return found

    def _read(self, name: str, version: int) -> tuple[Policy | None, int]:
        """Return a policy and the bytes of its publication."""
        body = self._store.publication(name, version)
        if body is None:
            return None, 0
        publication = decode_publication(body)
        policy = read_policy(parse_spec(msgspec.json.decode(publication.spec)), publication)
        # What people got who measured the gain is reported to their own round alone.
        return None if isinstance(policy, GainPolicy) else policy, len(body)

    def decided(self, closed: OpenRound, now: float) -> Decided:
        """Return which policies decided what the reports of a round are about, if its learner must know.

        Every report comes when the conversion window of its choice is over, so that the times tell.
        """
        window, policy = closed.spec.experiment.conversion_window, closed.step.policy
        if not window or policy.cohort or not policy.mixes or policy.draw is not None:
            return ()

        def delayed(seconds: Array) -> Array:
            return np.asarray(seconds >= window, np.float64)

        own = [(one.version, decode(one.facts, RoundFacts)) for one in self._store.rounds(closed.round.experiment)]
        # While late reports alone are taken nobody decides who reports.
        rounds = [
            (version, facts.opened)
            for version, facts in own
            if not (facts.cohort or facts.drains) and policy.takes(version)
        ]
        shares = shares_by_policy([opened for _, opened in rounds], closed.opened, now, delayed)
        found = [
            (self.find(closed.round.experiment, version), share)
            for (version, _), share in zip(rounds, shares, strict=True)
            if share
        ]
        return [(one, float(share)) for one, share in found if one is not None and one.terms.batch]
