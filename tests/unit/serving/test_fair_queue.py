"""Senders take turns."""

from dataclasses import dataclass

from privateer_core.serving.fair_queue import SenderQueue

GROUP = 256 * 1024


@dataclass(frozen=True)
class QueuedRequest:
    sender: str
    size: int


def put(turns: SenderQueue[QueuedRequest], request: QueuedRequest) -> bool:
    return turns.put(request.sender, request, request.size)


def make_queue(*requests: QueuedRequest, places: int = 4096) -> SenderQueue[QueuedRequest]:
    turns: SenderQueue[QueuedRequest] = SenderQueue(places, GROUP)
    for request in requests:
        assert put(turns, request)
    return turns


def list_groups(turns: SenderQueue[QueuedRequest]) -> list[list[str]]:
    groups = []
    while turns:
        groups.append([request.sender for request in turns.group()])
    return groups


def test_a_single_sender_fills_a_group() -> None:
    turns = make_queue(*[QueuedRequest("a", 7000)] * 100)
    sizes = [len(group) for group in list_groups(turns)]
    assert sum(sizes) == 100
    assert GROUP <= sizes[0] * 7000 < GROUP + 2 * 8192


def test_many_requests_of_one_sender_do_not_delay_others() -> None:
    turns = make_queue(*[QueuedRequest("flood", 70_000)] * 50, QueuedRequest("person", 70))
    assert turns.group() == [QueuedRequest("person", 70)]
    turns = make_queue(*[QueuedRequest("flood", 70)] * 1000, QueuedRequest("person", 70))
    first = turns.group()
    assert first[-1] == QueuedRequest("person", 70)
    assert len(first) <= 1 + 8192 // 70


def test_large_requests_are_not_starved_by_small_ones() -> None:
    turns = make_queue(QueuedRequest("relay", 70_000))
    waited = 0
    while put(turns, QueuedRequest("person", 70)) and QueuedRequest("relay", 70_000) not in turns.group():
        waited += 1
    assert waited == 70_000 // 8192


def test_a_huge_batch_waits_for_at_most_one_group() -> None:
    turns = make_queue(QueuedRequest("shuffler", 1 << 28))
    waited = 0
    while put(turns, QueuedRequest("person", 70)) and len(turns.group()) == 1:
        waited += 1
    assert waited < GROUP // 8192


def test_requests_of_a_sender_keep_their_order() -> None:
    requests = [QueuedRequest("abc"[n % 3], 1000 * (n % 17)) for n in range(300)]
    turns, out = make_queue(*requests), []
    while turns:
        out += turns.group()
    for sender in "abc":
        in_order, arrived = ([request for request in batch if request.sender == sender] for batch in (out, requests))
        assert in_order == arrived


def test_a_sender_has_at_most_the_free_places() -> None:
    turns: SenderQueue[QueuedRequest] = SenderQueue(100, GROUP)
    assert sum(put(turns, QueuedRequest("flood", 70)) for _ in range(200)) == 50
    assert sum(put(turns, QueuedRequest("other", 70)) for _ in range(200)) == 25
    assert put(turns, QueuedRequest("person", 70))
    while turns:
        turns.group()
    assert sum(put(turns, QueuedRequest("flood", 70)) for _ in range(200)) == 50
