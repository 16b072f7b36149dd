"""Counts the reports of a group of requests for one round."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from itertools import pairwise
from typing import Final

from privateer_core.clock import Clock, SystemClock
from privateer_core.codec import encode
from privateer_core.errors import BatchRefused, DecryptionFailed, OutOfRange, ReportRefused, RoundClosed
from privateer_core.policies.policy import Policy, group_by_age
from privateer_core.wire.publication import (
    Envelope,
    check_header,
    check_single_report,
    hpke_info,
    split_bytes,
    split_sealed,
)
from privateer_server.intake.decryption import REPORT_ID_SIZE, Decryptor
from privateer_server.intake.leader import JoinedBatch
from privateer_server.intake.receipts import Delivery, Receipt
from privateer_server.intake.spent_tokens import DUPLICATE_REPORT, FindTokenReport, ReportToken, ReportTokens
from privateer_server.rounds.open_round import MAX_CLOCK_DIFFERENCE_SECONDS, OpenRound
from privateer_server.rounds.states import NEXT, RoundEvent, RoundState
from privateer_server.store.records import RoundUpdate, ShufflerKey

_ROUND_CLOSED: Final = RoundClosed("this round is full", remedy="nothing to do: fetch the policy for later use")
_UNOPENABLE: Final = DecryptionFailed(
    "the report does not open", remedy="fetch the policy again and use the client library"
)
_OUT_OF_RANGE: Final = OutOfRange("not a report of this mechanism", remedy="send what the client library makes")
_REFUSAL_REASONS: Final = (_UNOPENABLE, _OUT_OF_RANGE, DUPLICATE_REPORT, _OUT_OF_RANGE, _ROUND_CLOSED)
"""The reason of each filter in order: not decrypted, other kind, duplicate, does not parse, or round full."""


class Accumulator:
    """Reports for one round, from several requests, before they are committed: the round itself stays unchanged.

    counted_ids: ids of the reports counted in the round so far.
    decryptor: decrypts reports; None if the round has no participants.
    find_answer: returns the answer to a batch of this experiment, by version and digest, if it was counted before.
    find_size: returns the bytes of one participant's report for an earlier version, if it exists.
    find_policy: returns the policy of an earlier version of this experiment, if it exists.
    find_token_report: returns the hash of a spent upload token's report; None if the token is not spent.
    """

    def __init__(
        self,
        open_round: OpenRound,
        counted_ids: Set[bytes],
        decryptor: Decryptor | None,
        clock: Clock | None = None,
        find_answer: Callable[[int, bytes], bytes | None] = lambda _version, _digest: None,
        find_size: Callable[[int], int | None] = lambda _version: None,
        find_policy: Callable[[int], Policy | None] = lambda _version: None,
        find_token_report: FindTokenReport = lambda _expires, _token: None,
    ) -> None:
        self.refused: Counter[str] = Counter()
        self.report_ids: dict[bytes, None] = {}
        self._round, self._counted_ids, self._decryptor = open_round, counted_ids, decryptor
        self._clock, self._find_answer, self._find_size = clock or SystemClock(), find_answer, find_size
        self._find_policy, self._tokens = find_policy, ReportTokens(find_token_report)
        self._mechanism = open_round.step.policy.terms.mechanism
        self._answers: dict[bytes, bytes] = {}
        self._payloads: list[bytes] = []
        self._joined: list[JoinedBatch] = []
        self._state, self._is_end_requested, self._is_all_valid = open_round.state, False, False
        self._shuffler_key: ShufflerKey | None = None

    @property
    def n_accepted(self) -> int:
        """The number of participants whose reports are counted here, even with a missing message."""
        return self._n_participants(len(self._payloads)) + sum(batch.accepted for batch in self._joined)

    @property
    def state(self) -> RoundState:
        """The state of the round with the reports counted here."""
        is_full = self._state is RoundState.OPEN and 0 < self._round.round.batch_size <= self._n_received
        return NEXT[self._state, RoundEvent.FILLED] if is_full else self._state

    @property
    def _n_received(self) -> int:
        return self._round.received + self.n_accepted

    @property
    def _capacity(self) -> int:
        """The number of participants whose reports from devices can still be counted."""
        return max(0, self._round.round.batch_size - self._n_received) if self._state is RoundState.OPEN else 0

    def validate_all(self, decrypted: list[bytes]) -> None:
        """Parse the messages of all requests at once: if all are valid, no message is parsed again."""
        self._is_all_valid = bool(decrypted) and self._is_valid([message for message in decrypted if message])

    def count_upload(
        self,
        envelope: Envelope,
        decrypted: list[bytes] | None = None,
        is_alone: bool = False,
        token: ReportToken | None = None,
    ) -> Receipt:
        """Count the reports of an envelope from devices; ``decrypted`` has their messages, if decrypted already.

        is_alone: whether the envelope is unsigned, so that it may carry the report of one participant only.
        token: the upload token of the envelope, if required; it is spent if the report counts.
        """
        receipt, facts = Receipt(), self._round.round
        try:
            check_header(envelope.header, facts, self._round.digest, "server")
            if is_alone:
                check_single_report(envelope, facts)
            sealed = split_sealed(envelope, facts)
            if token:
                self._tokens.check_unspent(token)
        except ReportRefused as refusal:
            receipt.refuse(refusal, max(1, len(envelope.sealed) // self._find_report_size(envelope.header.version)))
        else:
            self._count(sealed, self._capacity * facts.messages, envelope, decrypted, receipt)
        if token and receipt.accepted:
            self._tokens.spend(token)
        if receipt.refused:
            self.refused.update(receipt.refused)
        return receipt

    def _find_report_size(self, version: int) -> int:
        """Return the bytes of one participant's report for a version, if it was published; else for this round."""
        facts = self._round.round
        previous_size = self._find_size(version) if version < facts.version else None
        return previous_size or facts.report_size

    def count_simple_uploads(self, uploads: list[tuple[Envelope, list[bytes]]]) -> bool:
        """Count uploads of single participants at once if all are acceptable; else return False, and count none."""
        facts, messages = self._round.round, [message for _, decrypted in uploads for message in decrypted]
        ids = {message[:REPORT_ID_SIZE]: None for message in messages}
        is_acceptable = (
            facts.batch_size > 0
            and not self._round.is_shuffled
            and self._decryptor is not None
            and facts.groups == 1  # else the position of a message matters
            and len(uploads) <= self._capacity
            and all(each.header == self._round.header and len(each.sealed) == facts.report_size for each, _ in uploads)
            and all(messages)
            and len(ids) == len(messages)
            and self._counted_ids.isdisjoint(ids)
            and self.report_ids.keys().isdisjoint(ids)
            and (self._is_all_valid or self._is_valid(messages))
        )
        if is_acceptable:
            self.report_ids |= ids
            self._payloads += [message[REPORT_ID_SIZE:] for message in messages]
        return is_acceptable

    def count_batch(self, delivery: Delivery, decrypted: list[bytes] | None = None) -> Receipt:
        """Count the reports of a shuffler's batch, or return its earlier receipt; refuse it if the round is over.

        ``decrypted`` has their messages, if decrypted already. The round closes if all its batches together have as
        many valid reports as its privacy guarantee assumes. Otherwise it waits for another batch, or invites other
        participants: invalid messages cost nothing.
        """
        envelope, facts = delivery.envelope, self._round.round
        if stored := self._answers.get(delivery.digest) or self._find_answer(envelope.header.version, delivery.digest):
            return Receipt.from_answer(stored)
        check_header(envelope.header, facts, self._round.digest, "shuffler")
        if self.state is not RoundState.OPEN:
            raise RoundClosed("this round is over", remedy="nothing to do: what was sent is not used")
        receipt = Receipt()
        if facts.is_shared:
            self._count_joined(delivery.joined, receipt)
        else:
            self._check_batch_size(envelope)
            sealed = split_bytes(envelope.sealed, facts.sealed_size)
            self._count(sealed, len(sealed), envelope, decrypted, receipt)
        receipt.is_round_closed = self._n_received >= self._round.min_reports or self._round.schedule.learner.repeats
        self._state = NEXT[self._state, RoundEvent.DELIVERED if receipt.is_round_closed else RoundEvent.REPORTED]
        self.refused.update(receipt.refused)
        self._answers[delivery.digest], self._shuffler_key = receipt.answer, delivery.shuffler_key
        return receipt

    def _count_joined(self, joined: JoinedBatch | None, receipt: Receipt) -> None:
        """Count the votes that both servers accepted."""
        if joined is None:
            raise BatchRefused("reports of this experiment are shares", remedy="update the shuffler")
        receipt.accepted, receipt.refused = joined.accepted, Counter(joined.refused)
        if joined.accepted:
            self._joined.append(joined)

    def _check_batch_size(self, envelope: Envelope) -> None:
        """Refuse a batch that is not of whole reports, is too large, or is too small to close the round."""
        facts = self._round.round
        n_participants, remainder = divmod(len(envelope.sealed), facts.report_size)
        latest_time = self._clock.monotonic() + MAX_CLOCK_DIFFERENCE_SECONDS
        if remainder or n_participants > facts.batch_size or not self._round.has_enough(latest_time, n_participants):
            raise BatchRefused(
                f"a batch of this round has the reports of {facts.batch_size} people of {facts.report_size} bytes "
                f"each, or of at least {facts.fewest} after its deadline",
                remedy="send a whole batch at once",
            )

    def end_round_if_due(self) -> Receipt:
        """End the round if it is due; a round that has ended before is to be closed again."""
        self._is_end_requested = True
        if self._state is RoundState.OPEN:
            self._state = NEXT[self._state, self._round.event_at(self._clock.monotonic(), self._n_received)]
        return Receipt()

    def _count(
        self, sealed: list[bytes], capacity: int, envelope: Envelope, decrypted: list[bytes] | None, receipt: Receipt
    ) -> None:
        """Count at most ``capacity`` messages, and record in the receipt why the others were refused."""
        if not capacity or self._decryptor is None:
            receipt.refuse(_ROUND_CLOSED, self._n_participants(len(sealed)))
            return
        if decrypted is None:
            decrypted = self._decryptor.decrypt(sealed, hpke_info(envelope.header, self._round.round.model))
        expected_kind = self._select_expected_kind(decrypted)
        decrypted = [message for message in decrypted if message]
        unique = self._drop_duplicates(expected_kind)
        valid = self._drop_invalid(unique)
        accepted = valid[:capacity]
        if len(accepted) < len(sealed):
            stages = pairwise((sealed, decrypted, expected_kind, unique, valid, accepted))
            for reason, (before, after) in zip(_REFUSAL_REASONS, stages, strict=True):
                receipt.refuse(reason, self._n_participants(len(before) - len(after)))
        receipt.accepted = self._n_participants(len(accepted))
        for message in accepted:
            self.report_ids[message[:REPORT_ID_SIZE]] = None
            self._payloads.append(message[REPORT_ID_SIZE:])

    def _select_expected_kind(self, decrypted: list[bytes]) -> list[bytes]:
        """Return the decrypted messages that have the kind of their position: a batch is ordered by kind.

        Each participant has equally many positions of each kind, so that no participant can send more of a kind.
        """
        groups = self._round.round.groups
        if groups == 1:
            return [message for message in decrypted if message]
        n_per_kind = len(decrypted) // groups
        pairs = [(index // n_per_kind, message) for index, message in enumerate(decrypted) if message]
        kinds = self._mechanism.kinds(b"".join(message[REPORT_ID_SIZE:] for _, message in pairs))
        return [message for (kind, message), true_kind in zip(pairs, kinds.tolist(), strict=True) if kind == true_kind]

    def _n_participants(self, n_messages: int) -> int:
        """Return the minimum number of participants who send a number of messages."""
        return math.ceil(n_messages / self._round.round.messages)

    def _drop_duplicates(self, messages: list[bytes]) -> list[bytes]:
        """Return the messages with ids that were not counted before, nor appear earlier in the same request."""
        first: dict[bytes, bytes] = {}
        for each in messages:
            first.setdefault(each[:REPORT_ID_SIZE], each)
        return [report for key, report in first.items() if key not in self._counted_ids and key not in self.report_ids]

    def _drop_invalid(self, messages: list[bytes]) -> list[bytes]:
        """Return the messages that parse. Invalid messages are rare, so halves without any are accepted at once."""
        if not messages or self._is_all_valid or self._is_valid(messages):
            return messages
        middle = len(messages) // 2
        return self._drop_invalid(messages[:middle]) + self._drop_invalid(messages[middle:]) if middle else []

    def _is_valid(self, messages: list[bytes]) -> bool:
        """Whether all messages parse, as reports on decisions of known policies."""
        try:
            for _, payloads in self._group_by_policy([message[REPORT_ID_SIZE:] for message in messages]):
                self._mechanism.parse(payloads)
        except OutOfRange:
            return False
        return True

    def _group_by_policy(self, payloads: list[bytes]) -> Iterator[tuple[Policy, bytes]]:
        """Yield each decision policy with the joined payloads of the reports on its decisions."""
        policy = self._round.step.policy
        for age, chunk in group_by_age(payloads).items() if policy.tells_age else [(0, b"".join(payloads))]:
            version, decision_policy = policy.version - age, policy if age == 0 else None
            if age and policy.accepts_decisions_of(version):
                decision_policy = self._find_policy(version)
            if decision_policy is None or decision_policy.cohort != policy.cohort:
                raise OutOfRange("on a decision of no known policy", remedy="send what the client library makes")
            yield decision_policy, chunk

    @property
    def should_close_round(self) -> bool:
        """Whether the round is to be closed now: it was given up, became full, or an earlier attempt has failed."""
        return self.state is not RoundState.OPEN and (self._is_end_requested or self._round.state is RoundState.OPEN)

    def build_update(self) -> tuple[OpenRound, RoundUpdate]:
        """Return the round with the counted reports, and the change that makes them durable, without a next round."""
        protected = None
        closed = replace(self._round, received=self._n_received, state=self.state)
        if self._payloads:
            mechanism, total, policy = self._mechanism, closed.total, closed.step.policy
            for decision_policy, payloads in self._group_by_policy(self._payloads):
                total = mechanism.merge(total, policy.make_analyzer(decision_policy).tally(mechanism, payloads))
            assert self._decryptor is not None, "its reports were opened"
            closed, protected = replace(closed, total=total), self._decryptor.encrypt_sums(encode(total), closed.digest)
        for batch in self._joined:
            assert self._decryptor is not None, "its shares were opened"
            closed = replace(closed, total=self._mechanism.merge(closed.total, batch.total))
            protected = self._decryptor.encrypt_sums(encode(closed.total), closed.digest)
        change = RoundUpdate(
            experiment=closed.round.experiment,
            version=closed.round.version,
            counted=self.n_accepted,
            state=closed.state,
            part=closed.part,
            total=protected,
            report_ids=() if closed.state is RoundState.CLOSED else tuple(self.report_ids),
            refused=self.refused,
            answers=self._answers,
            tokens=list(self._tokens.new_rows.values()),
            shuffler_key=self._shuffler_key,
        )
        return closed, change
