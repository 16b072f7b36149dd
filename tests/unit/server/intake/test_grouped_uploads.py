"""Uploads of one participant each are counted in groups with the same outcome as one after another."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from privateer_core.codec import encode
from privateer_core.errors import PrivateerError
from privateer_core.wire.publication import Envelope, Header, hpke_info
from privateer_server.data import open_data
from privateer_server.intake import counting
from privateer_server.intake.accumulator import Accumulator
from privateer_server.intake.counting import Request
from privateer_server.intake.decryption import Decryptor
from privateer_server.rounds.open_round import OpenRound, open_first_round
from privateer_server.settings import ServerSettings
from tests.support.sealing import header_for, seal, sealed_reports
from tests.support.servers import SMALL, TOKEN
from tests.support.specs import make_spec

PEOPLE = 40


@pytest.fixture
def round_and_key(tmp_path: Path) -> Iterator[tuple[OpenRound, Decryptor]]:
    """A round of `PEOPLE`, and what opens its reports."""
    data = open_data(ServerSettings(data=tmp_path, admin_token=TOKEN))
    spec = make_spec({**SMALL, "experiment.round_size": PEOPLE, "experiment.horizon": 10 * PEOPLE})
    current = open_first_round(spec, data.keys.create_key())
    opener = data.keys.find_decryptor(current.round.public_key)
    assert opener is not None
    yield current, opener
    data.close()


def request(sealed: bytes, header: Header, current: OpenRound, opener: Decryptor) -> Request:
    """An upload, open if it is for the round."""
    envelope = Envelope(header, sealed)

    upload = Request("test", lambda into, texts: into.count_upload(envelope, texts, True), envelope, is_simple=True)
    if upload.is_for(current):
        upload.decrypt(opener, current)
    return upload


def result(current: OpenRound, opener: Decryptor, seen_ids: set[bytes], requests: list[Request]) -> list[Any]:
    """What becomes of each upload, and of the round."""
    accumulator = Accumulator(current, seen_ids, opener)
    accumulator.validate_all([message for request in requests for message in request.decrypted or ()])
    answers = counting._count_requests(counting._OpenCount(None, None, accumulator), requests)  # type: ignore[arg-type]
    outcomes = [
        type(reply) if isinstance(reply, PrivateerError) else (reply.accepted, reply.refused, type(reply.first_refusal))
        for reply in answers
    ]
    filled, change = accumulator.build_update()
    return [outcomes, accumulator.report_ids, accumulator.refused, change.counted, change.state, encode(filled.total)]


@pytest.mark.parametrize("good", [25, 60])
@pytest.mark.parametrize("seed", range(4))
def test_grouped_uploads_have_the_outcome_of_single_uploads(
    round_and_key: tuple[OpenRound, Decryptor], monkeypatch: pytest.MonkeyPatch, seed: int, good: int
) -> None:
    """Include repeated, counted, undecryptable and malformed uploads, and some for other rounds or two people."""
    current, opener = round_and_key
    rng, publication = random.Random(seed), current.publication
    header, (*sealed, first, second, last) = header_for(publication), sealed_reports(publication, good + 3, seed)
    info = hpke_info(header, current.round.model)
    later = Header(header.experiment, 2, header.key_id, header.digest)
    wrong = seal(publication, bytes(16) + b"\xff" * (current.round.sealed_size - 64))
    bad = [
        (sealed[3], header),
        (bytes(len(sealed[0])), header),
        (wrong, header),
        (sealed[4][:-1], header),
        (b"", header),
        (first + second, header),
        (last, later),
    ]
    for extra in ([], *([each] for each in bad), bad):
        requests = [request(*each, current, opener) for each in [*((each, header) for each in sealed), *extra]]
        for each in requests:
            if each.envelope and each.envelope.header is later:  # it was open before the round changed
                each.decrypted = opener.decrypt([last], info)
        rng.shuffle(requests)
        seen = {opener.decrypt([sealed[0]], info)[0][:16]} if extra else set()
        grouped = result(current, opener, seen, requests)
        with monkeypatch.context() as patch:
            patch.setattr(counting, "_MAX_INDIVIDUAL_REQUESTS", len(requests) + 1)
            assert grouped == result(current, opener, seen, requests)
        assert grouped[3] == min(PEOPLE, good - bool(extra)), "it counts all that are good"


def test_few_uploads_of_a_group_are_processed_alone(
    round_and_key: tuple[OpenRound, Decryptor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Besides one refused upload among 32, at most three more are processed alone."""
    current, opener = round_and_key
    header, sealed = header_for(current.publication), sealed_reports(current.publication, 32)
    requests = [request(report, header, current, opener) for report in sealed]
    individual: list[Envelope] = []
    take = Accumulator.count_upload

    def spy(self: Accumulator, envelope: Envelope, *rest: Any) -> Any:
        individual.append(envelope)
        return take(self, envelope, *rest)

    monkeypatch.setattr(Accumulator, "count_upload", spy)
    assert result(current, opener, set(), requests)[3] == 32
    assert not individual
    requests[9] = request(bytes(len(sealed[0])), header, current, opener)
    assert result(current, opener, set(), requests)[3] == 31
    assert len(individual) <= counting._MAX_INDIVIDUAL_REQUESTS
