"""The policies that an experiment has published before: reports may be about what they decided."""

from collections import OrderedDict
from threading import Lock
from typing import Final

import msgspec
import numpy as np

from privateer_core.algorithms import parse_spec
from privateer_core.codec import decode
from privateer_core.policy import Policy
from privateer_core.wire.publication import decode_publication
from privateer_server.following import Array, shares_by_policy
from privateer_server.rounds import OpenRound, RoundFacts, read_policy
from privateer_server.schedule import Decided
from privateer_server.store.protocol import Store

_KEPT: Final = 1024
_BYTES: Final = 64 << 20
"""Policies kept in memory, and bytes of their publications: who sends old reports does not have them read each time."""


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
        return read_policy(parse_spec(msgspec.json.decode(publication.spec)), publication), len(body)

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
