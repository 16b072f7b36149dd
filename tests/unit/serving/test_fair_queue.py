"""Senders take turns."""

from dataclasses import dataclass

from privateer_core.serving.fair_queue import SenderQueue

GROUP = 256 * 1024


@dataclass(frozen=True)
class Asked:
    sender: str
    size: int


def queued(*requests: Asked, places: int = 4096) -> SenderQueue[Asked]:
    turns: SenderQueue[Asked] = SenderQueue(places, GROUP)
    for one in requests:
        assert turns.put(one.sender, one)
    return turns


def order(turns: SenderQueue[Asked]) -> list[list[str]]:
    groups = []
    while turns:
        groups.append([one.sender for one in turns.group()])
    return groups


def test_one_sender_alone_fills_a_group() -> None:
    turns = queued(*[Asked("a", 7000)] * 100)
    sizes = [len(group) for group in order(turns)]
    assert sum(sizes) == 100
    assert GROUP <= sizes[0] * 7000 < GROUP + 2 * 8192


def test_what_one_sends_a_lot_of_delays_nobody_else() -> None:
    turns = queued(*[Asked("flood", 70_000)] * 50, Asked("person", 70))
    assert turns.group() == [Asked("person", 70)]
    turns = queued(*[Asked("flood", 70)] * 1000, Asked("person", 70))
    first = turns.group()
    assert first[-1] == Asked("person", 70)
    assert len(first) <= 1 + 8192 // 70


def test_large_requests_come_to_their_turn_among_small_ones() -> None:
    turns = queued(Asked("relay", 70_000))
    waited = 0
    while turns.put("person", Asked("person", 70)) and Asked("relay", 70_000) not in turns.group():
        waited += 1
    assert waited == 70_000 // 8192


def test_a_huge_batch_waits_no_longer_than_a_group() -> None:
    turns = queued(Asked("shuffler", 1 << 28))
    waited = 0
    while turns.put("person", Asked("person", 70)) and len(turns.group()) == 1:
        waited += 1
    assert waited < GROUP // 8192


def test_order_within_a_sender_is_kept_and_nothing_is_lost() -> None:
    requests = [Asked("abc"[n % 3], 1000 * (n % 17)) for n in range(300)]
    turns, out = queued(*requests), []
    while turns:
        out += turns.group()
    for sender in "abc":
        assert [one for one in out if one.sender == sender] == [one for one in requests if one.sender == sender]


def test_a_sender_has_no_more_places_than_are_left() -> None:
    turns: SenderQueue[Asked] = SenderQueue(100, GROUP)
    assert sum(turns.put("flood", Asked("flood", 70)) for _ in range(200)) == 50
    assert sum(turns.put("other", Asked("other", 70)) for _ in range(200)) == 25
    assert turns.put("person", Asked("person", 70))
    while turns:
        turns.group()
    assert sum(turns.put("flood", Asked("flood", 70)) for _ in range(200)) == 50
