"""Uploads of one person each are counted together: to the same end as one after the other, with less work."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privateer_core.codec import encode
from privateer_core.errors import PrivateerError
from privateer_core.wire.envelope import Envelope, Header, binding
from privateer_server.data import open_data
from privateer_server.intake import counting
from privateer_server.intake.accumulator import Accumulator
from privateer_server.intake.counting import Request
from privateer_server.intake.opening import Opener
from privateer_server.rounds.open_round import OpenRound, first_round
from privateer_server.settings import ServerSettings
from tests.support.sealing import header_for, seal, sealed_reports
from tests.support.servers import SMALL, TOKEN
from tests.support.specs import make_spec

PEOPLE = 40


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[OpenRound, Opener]]:
    """A round of `PEOPLE`, and what opens its reports."""
    data = open_data(ServerSettings(data=tmp_path, admin_token=TOKEN))
    spec = make_spec({**SMALL, "experiment.round_size": PEOPLE, "experiment.horizon": 10 * PEOPLE})
    current = first_round(spec, data.keys.make())
    opener = data.keys.find(current.round.public_key)
    assert opener is not None
    yield current, opener
    data.close()


def request(sealed: bytes, header: Header, current: OpenRound, opener: Opener) -> Request:
    """An upload, open if it is for the round."""
    envelope = Envelope(header, sealed)
    made = Request("test", lambda into, opened: into.take(envelope, opened, True), envelope, is_plain=True)
    if made.is_for(current):
        made.open(opener, current)
    return made


def result(current: OpenRound, opener: Opener, seen: set[bytes], requests: list[Request]) -> list[Any]:
    """What becomes of each upload, and of the round."""
    accumulator = Accumulator(current, seen, opener)
    accumulator.examine([one for request in requests for one in request.opened or ()])
    answers = counting._taken(counting._Begun(None, None, accumulator), requests)  # type: ignore[arg-type]
    told = [
        type(one) if isinstance(one, PrivateerError) else (one.accepted, one.refused, type(one.problem))
        for one in answers
    ]
    filled, change = accumulator.close()
    return [told, accumulator.report_ids, accumulator.refused, change.counted, change.taken, encode(filled.total)]


@pytest.mark.parametrize("good", [25, 60])
@pytest.mark.parametrize("seed", range(4))
def test_together_is_as_one_by_one(
    opened: tuple[OpenRound, Opener], monkeypatch: pytest.MonkeyPatch, seed: int, good: int
) -> None:
    """Some are sent twice, were counted before, do not open or parse, are of other rounds or of two people."""
    current, opener = opened
    rng, publication = random.Random(seed), current.publication
    header, (*sealed, one, other, last) = header_for(publication), sealed_reports(publication, good + 3, seed)
    info = binding(header, current.round.model)
    later = Header(header.experiment, 2, header.key_id, header.digest)
    wrong = seal(publication, bytes(16) + b"\xff" * (current.round.sealed_size - 64))
    bad = [
        (sealed[3], header),
        (bytes(len(sealed[0])), header),
        (wrong, header),
        (sealed[4][:-1], header),
        (b"", header),
        (one + other, header),
        (last, later),
    ]
    for some in ([], *([each] for each in bad), bad):
        requests = [request(*each, current, opener) for each in [*((each, header) for each in sealed), *some]]
        for each in requests:
            if each.envelope and each.envelope.header is later:  # it was open before the round changed
                each.opened = opener.open([last], info)
        rng.shuffle(requests)
        seen = {opener.open([sealed[0]], info)[0][:16]} if some else set()
        together = result(current, opener, seen, requests)
        with monkeypatch.context() as patch:
            patch.setattr(counting, "_FEW", len(requests) + 1)
            assert together == result(current, opener, seen, requests)
        assert together[3] == min(PEOPLE, good - bool(some)), "it counts all that are good"


def test_what_is_alike_is_not_looked_at_one_by_one(
    opened: tuple[OpenRound, Opener], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside one that is refused among 32, three others are, at most."""
    current, opener = opened
    header, sealed = header_for(current.publication), sealed_reports(current.publication, 32)
    requests = [request(one, header, current, opener) for one in sealed]
    taken: list[Envelope] = []
    take = Accumulator.take

    def spy(self: Accumulator, envelope: Envelope, *rest: Any) -> Any:
        taken.append(envelope)
        return take(self, envelope, *rest)

    monkeypatch.setattr(Accumulator, "take", spy)
    assert result(current, opener, set(), requests)[3] == 32
    assert not taken
    requests[9] = request(bytes(len(sealed[0])), header, current, opener)
    assert result(current, opener, set(), requests)[3] == 31
    assert len(taken) <= counting._FEW
