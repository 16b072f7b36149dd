"""Counts what a group of requests brings to one round."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from itertools import pairwise
from typing import Final

from privateer_core.clock import Clock, SystemClock
from privateer_core.codec import encode
from privateer_core.errors import BatchRefused, DuplicateReport, OutOfRange, ReportRefused, RoundClosed, Unopenable
from privateer_core.policies.decisions import by_age
from privateer_core.policies.policy import Policy
from privateer_core.wire.batch import check_alone
from privateer_core.wire.envelope import Envelope, binding, check_header, pieces, split_sealed
from privateer_server.intake.admission import FindSpent, SpentToken
from privateer_server.intake.opening import REPORT_ID_SIZE, Opener
from privateer_server.intake.receipts import Delivery, Receipt
from privateer_server.rounds.open_round import CLOCKS_APART, OpenRound
from privateer_server.store.records import RoundUpdate, ShufflerKey, TokenRow

_CLOSED: Final = RoundClosed("this round is full", remedy="nothing to do: fetch the policy for later use")
_UNOPENABLE: Final = Unopenable("the report does not open", remedy="fetch the policy again and use the client library")
_DUPLICATE: Final = DuplicateReport("the report was counted before", remedy="nothing to do: it counts once")
_OUT_OF_RANGE: Final = OutOfRange("not a report of this mechanism", remedy="send what the client library makes")
_REFUSALS: Final = (_UNOPENABLE, _OUT_OF_RANGE, _DUPLICATE, _OUT_OF_RANGE, _CLOSED)
"""Why messages do not open, are of another kind, are not fresh, do not parse, or do not fit, as they are sifted."""


class Accumulator:
    """Reports for one round, from several requests, before they are committed: the round itself stays as it was.

    current: the round.
    seen: ids of the reports counted in it so far.
    opener: what decrypts reports; None if the round asks nobody.
    clock: what says when a round is due.
    answered: returns the answer to a batch of this experiment, by version and digest, if it was counted before.
    size_before: returns the bytes that one person sent for an earlier version of this experiment, if there was one.
    earlier: returns the policy of an earlier version of this experiment, if there was one.
    spent: returns the report that a spent upload token came with, if it was spent.
    """

    def __init__(
        self,
        current: OpenRound,
        seen: Set[bytes],
        opener: Opener | None,
        clock: Clock | None = None,
        answered: Callable[[int, bytes], bytes | None] = lambda _version, _digest: None,
        size_before: Callable[[int], int | None] = lambda _version: None,
        earlier: Callable[[int], Policy | None] = lambda _version: None,
        spent: FindSpent = lambda _expires, _token: None,
    ) -> None:
        self.refused: Counter[str] = Counter()
        self.report_ids: dict[bytes, None] = {}
        self._current, self._seen, self._opener = current, seen, opener
        self._clock, self._answered, self._size_before = clock or SystemClock(), answered, size_before
        self._earlier, self._spent, self._tokens = earlier, spent, dict[bytes, TokenRow]()
        self._is_due_here = current.round.batch > 0 and not current.shuffled
        self._answers: dict[bytes, bytes] = {}
        self._rows: list[bytes] = []
        self._closed, self._given_up, self._asked, self._sound = current.taken, current.given_up, False, False
        self._closer: ShufflerKey | None = None

    @property
    def accepted(self) -> int:
        """The number of people whose reports are counted here; a person with a missing message counts."""
        return self._people(len(self._rows))

    @property
    def taken(self) -> bool:
        """Whether the round takes no more reports; what it has is learned from if it is enough for the promise."""
        return self._closed or 0 < self._current.round.batch <= self._received

    @property
    def _received(self) -> int:
        return self._current.received + self.accepted

    @property
    def _room(self) -> int:
        """For how many people's reports from devices there is room."""
        return 0 if self._closed or self._given_up else max(0, self._current.round.batch - self._received)

    def examine(self, opened: list[bytes]) -> None:
        """Parse all that requests hold at once: if all of it does, none of it is parsed again request by request."""
        self._sound = bool(opened) and self._parses([one for one in opened if one])

    def take(
        self,
        envelope: Envelope,
        opened: list[bytes] | None = None,
        is_alone: bool = False,
        token: SpentToken | None = None,
    ) -> Receipt:
        """Count the reports of an envelope from devices; ``opened`` is what they hold, if they are open already.

        is_alone: whether nobody signed it, so that it may carry one person's report and no more.
        token: the upload token that it comes with, if it needs one; it is spent if the report counts.
        """
        receipt, facts = Receipt(), self._current.round
        try:
            if not self._is_due_here or envelope.header != self._current.header:
                check_header(envelope.header, facts, self._current.digest, "server")
            if is_alone:
                check_alone(envelope, facts)
            sealed = split_sealed(envelope, facts)
            if token:
                token.check(self._find_spent)
        except ReportRefused as problem:
            receipt.refuse(problem, max(1, len(envelope.sealed) // self._report_size(envelope.header.version)))
        else:
            self._count(sealed, self._room * facts.messages, envelope, opened, receipt)
        if token and receipt.accepted:
            self._tokens[token.row.token] = token.row
        if receipt.refused:
            self.refused.update(receipt.refused)
        return receipt

    def _find_spent(self, expires: int, token: bytes) -> bytes | None:
        return self._tokens[token].report if token in self._tokens else self._spent(expires, token)

    def _report_size(self, version: int) -> int:
        """Return the bytes that one person sends for a version, if it was published; else for this round."""
        facts = self._current.round
        earlier = self._size_before(version) if version < facts.version else None
        return earlier or facts.report_size

    def take_alike(self, uploads: list[tuple[Envelope, list[bytes]]]) -> bool:
        """Count uploads of one person each, and what they hold, at once, if `take` would refuse nothing of any.

        Returns
        -------
        bool
            False if nothing was counted, and `take` must be asked about each.
        """
        facts, messages = self._current.round, [one for _, opened in uploads for one in opened]
        ids = {message[:REPORT_ID_SIZE]: None for message in messages}
        is_like = (
            self._is_due_here
            and self._opener is not None
            and facts.groups == 1  # else the place of a message counts
            and len(uploads) <= self._room
            and all(one.header == self._current.header and len(one.sealed) == facts.report_size for one, _ in uploads)
            and all(messages)
            and len(ids) == len(messages)
            and self._seen.isdisjoint(ids)
            and self.report_ids.keys().isdisjoint(ids)
            and (self._sound or self._parses(messages))
        )
        if is_like:
            self.report_ids |= ids
            self._rows += [message[REPORT_ID_SIZE:] for message in messages]
        return is_like

    def take_batch(self, delivery: Delivery, opened: list[bytes] | None = None) -> Receipt:
        """Count the reports of a shuffler's batch; ``opened`` is what they hold, if they are open already.

        The round closes if as many opened, over all its batches, as its promise counts on. Otherwise it waits for
        another batch, or asks other people: what does not open costs the experiment nothing.
        """
        envelope, facts = delivery.envelope, self._current.round
        if earlier := self._answers.get(delivery.digest) or self._answered(envelope.header.version, delivery.digest):
            return Receipt.read(earlier)
        check_header(envelope.header, facts, self._current.digest, "shuffler")
        if self.taken or self._given_up:
            raise RoundClosed("this round is over", remedy="nothing to do: what was sent is not used")
        self._check_size(envelope)
        receipt = Receipt()
        sealed = pieces(envelope.sealed, facts.sealed_size)
        self._count(sealed, len(sealed), envelope, opened, receipt)
        receipt.closed = self._closed = self._received >= self._current.enough or self._current.schedule.learner.repeats
        self.refused.update(receipt.refused)
        self._answers[delivery.digest], self._closer = receipt.answer, delivery.closer
        return receipt

    def _check_size(self, envelope: Envelope) -> None:
        facts = self._current.round
        people, rest = divmod(len(envelope.sealed), facts.report_size)
        latest = self._clock.monotonic() + CLOCKS_APART
        if rest or people > facts.batch or not self._current.may_close(latest, people):
            raise BatchRefused(
                f"a batch of this round has the reports of {facts.batch} people of {facts.report_size} bytes each, or "
                f"of at least {facts.fewest} after its deadline",
                remedy="send a whole batch at once",
            )

    def expire(self) -> Receipt:
        """Close a round that is due or waits to be learned from, or give it up when nobody waits for it any longer."""
        now = self._clock.monotonic()
        self._asked = True
        if self._given_up:
            return Receipt()
        if self._current.is_due(now, self._received):
            self._closed = True
        elif not self.taken and self._current.is_ended(now):
            self._closed = self._current.tells(self._received)
            self._given_up = not self._closed
        else:
            self._given_up = not self.taken and self._current.is_given_up(now)
        return Receipt()

    def _count(
        self, sealed: list[bytes], room: int, envelope: Envelope, opened: list[bytes] | None, receipt: Receipt
    ) -> None:
        """Count messages, at most ``room`` of them."""
        if not room or self._opener is None:
            receipt.refuse(_CLOSED, self._people(len(sealed)))
            return
        if opened is None:
            opened = self._opener.open(sealed, binding(envelope.header, self._current.round.model))
        placed = self._placed(opened)
        opened = [one for one in opened if one]
        fresh = self._fresh(placed)
        good = self._in_range(fresh)
        fitting = good[:room]
        if len(fitting) < len(sealed):
            steps = pairwise((sealed, opened, placed, fresh, good, fitting))
            for problem, (before, after) in zip(_REFUSALS, steps, strict=True):
                receipt.refuse(problem, self._people(len(before) - len(after)))
        receipt.accepted = self._people(len(fitting))
        for report in fitting:
            self.report_ids[report[:REPORT_ID_SIZE]] = None
            self._rows.append(report[REPORT_ID_SIZE:])

    def _placed(self, opened: list[bytes]) -> list[bytes]:
        """Return the messages that open, and are of the kind that they stand among: a batch has kind after kind.

        A person has as many places of each kind as all others, so nobody can send more of one.
        """
        groups = self._current.round.groups
        if groups == 1:
            return [one for one in opened if one]
        each = len(opened) // groups
        found = [(place // each, one) for place, one in enumerate(opened) if one]
        kinds = self._current.mechanism.kinds(b"".join(one[REPORT_ID_SIZE:] for _, one in found))
        return [one for (place, one), kind in zip(found, kinds.tolist(), strict=True) if place == kind]

    def _people(self, messages: int) -> int:
        """Return how many people send so many messages, at least."""
        return math.ceil(messages / self._current.round.messages)

    def _fresh(self, opened: list[bytes]) -> list[bytes]:
        """Return the reports with ids that were not counted before, nor appear earlier in the same request."""
        first: dict[bytes, bytes] = {}
        for report in opened:
            first.setdefault(report[:REPORT_ID_SIZE], report)
        return [one for name, one in first.items() if name not in self._seen and name not in self.report_ids]

    def _in_range(self, reports: list[bytes]) -> list[bytes]:
        """Return the reports that parse. Few do not, so halves in which all parse are found at once."""
        if not reports or self._sound or self._parses(reports):
            return reports
        half = len(reports) // 2
        return self._in_range(reports[:half]) + self._in_range(reports[half:]) if half else []

    def _parses(self, reports: list[bytes]) -> bool:
        try:
            for _, rows in self._parts([report[REPORT_ID_SIZE:] for report in reports]):
                self._current.mechanism.parse(rows)
        except OutOfRange:
            return False
        return True

    def _parts(self, rows: list[bytes]) -> Iterator[tuple[Policy, bytes]]:
        """Yield reports, put together, with the policy on whose decisions they are."""
        policy = self._current.step.policy
        for age, some in by_age(rows).items() if policy.tells_age else [(0, b"".join(rows))]:
            decided = policy.version - age
            known = policy if age == 0 else self._earlier(decided) if policy.takes(decided) else None
            if known is None or known.cohort != policy.cohort:
                raise OutOfRange("on a decision of no known policy", remedy="send what the client library makes")
            yield known, some

    @property
    def ends_round(self) -> bool:
        """Whether the round is to be closed now: it was given up, became full, or waits for it since an earlier try."""
        was_over = self._current.taken or self._current.given_up
        return (self._given_up or self.taken) and (self._asked or not was_over)

    def close(self) -> tuple[OpenRound, RoundUpdate]:
        """Return the round with what was counted, and the change that makes it durable; this opens no other round."""
        protected = None
        filled = replace(self._current, received=self._received, taken=self.taken, given_up=self._given_up)
        if self._rows:
            mechanism, total = filled.mechanism, filled.total
            policy = filled.step.policy
            for known, rows in self._parts(self._rows):
                total = mechanism.merge(total, policy.analyzer(known).tally(mechanism, rows))
            assert self._opener is not None, "its reports were opened"
            filled, protected = replace(filled, total=total), self._opener.protect(encode(total), filled.digest)
        change = RoundUpdate(
            experiment=filled.round.experiment,
            version=filled.round.version,
            counted=self.accepted,
            taken=filled.taken,
            given_up=filled.given_up,
            part=filled.part,
            total=protected,
            report_ids=() if filled.taken else tuple(self.report_ids),
            refused=self.refused,
            answers=self._answers,
            tokens=list(self._tokens.values()),
            closer=self._closer,
        )
        return filled, change
