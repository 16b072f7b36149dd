"""The intake of reports: grouped uploads, and messages that are refused."""

import asyncio
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.codec import encode
from privateer_core.errors import PrivateerError
from privateer_core.wire.batch import BATCH, SIGNATURE_HEADER
from privateer_core.wire.publication import Envelope, Header, decode_publication, hpke_info
from privateer_server.app import create_app
from privateer_server.data import open_data
from privateer_server.intake import counting
from privateer_server.intake.accumulator import Accumulator
from privateer_server.intake.counting import Request
from privateer_server.intake.decryption import Decryptor, RoundKeys
from privateer_server.rounds.closing import RoundCloser
from privateer_server.rounds.open_round import OpenRound, open_first_round
from privateer_server.rounds.states import RoundState
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.phased import tables
from tests.support.sealing import body_of, header_for, permuted, seal, sealed_reports
from tests.support.servers import ADMIN, SMALL, TOKEN, Api, assert_problem
from tests.support.specs import make_spec

SLOW = {**SMALL, "experiment.name": "slow"}


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """The experiment ``slow`` learns from a round once the event is set."""
    event, close = Event(), RoundCloser.close_round

    def wait(closer: RoundCloser, current: OpenRound) -> Any:
        if current.round.experiment == "slow":
            assert event.wait(20)
        return close(closer, current)

    monkeypatch.setattr(RoundCloser, "close_round", wait)
    yield event
    event.set()


async def fill(api: Api, name: str) -> Any:
    body = await api.publication(name)
    return await api.client.post("/reports", content=body_of(body, sealed_reports(body, 20)))


async def test_experiments_learn_concurrently(api: Api, learning: Event) -> None:
    await api.create(SLOW)
    await api.create(SMALL)
    slow = asyncio.create_task(fill(api, "slow"))
    for version in (2, 3):
        assert (await fill(api, "test")).json()["accepted"] == 20
        assert (await api.facts("test"))["version"] == version
    assert not slow.done()
    assert (await api.facts("slow"))["version"] == 1
    learning.set()
    assert (await slow).json()["accepted"] == 20
    assert (await api.facts("slow"))["version"] == 2


async def test_reports_for_a_closing_round_wait_for_the_next_round(api: Api, learning: Event) -> None:
    await api.create(SLOW)
    body = await api.publication("slow")
    slow = asyncio.create_task(fill(api, "slow"))
    while not (await api.facts("slow"))["accepted"]:
        await asyncio.sleep(0.01)
    late = asyncio.create_task(api.client.post("/reports", content=body_of(body, sealed_reports(body, 1))))
    await asyncio.sleep(0.05)
    assert not late.done()
    learning.set()
    assert_problem(await late, 409, "round-closed")
    assert (await slow).status_code == 202
    facts = await api.facts("slow")
    assert (facts["version"], facts["accepted"], facts["refused"]) == (2, 20, {"round-closed": 1})


async def test_an_unreadable_round_key_does_not_stop_intake(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError

    await api.create(SMALL)
    with monkeypatch.context() as broken:
        broken.setattr(RoundKeys, "find_decryptor", fail)
        async with asyncio.timeout(20):
            assert_problem(await fill(api, "test"), 503, "unavailable")
    assert (await fill(api, "test")).json()["accepted"] == 20


async def test_the_queue_for_a_closing_round_is_bounded(api, learning, monkeypatch):
    monkeypatch.setattr("privateer_server.intake.intake._MAX_QUEUED_REQUESTS", 3)
    await api.create(SLOW)
    body = await api.publication("slow")
    slow = asyncio.create_task(fill(api, "slow"))
    while not (await api.facts("slow"))["accepted"]:
        await asyncio.sleep(0.01)
    late = [body_of(body, sealed_reports(body, 1)) for _ in range(5)]
    waiting = {asyncio.create_task(api.client.post("/reports", content=upload)) for upload in late}
    finished = set[asyncio.Task[Any]]()
    async with asyncio.timeout(20):
        while len(finished) < 2:
            newly_finished, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finished |= newly_finished
    for task in finished:
        assert_problem(await task, 503, "unavailable")
    learning.set()
    for task in waiting:
        assert_problem(await task, 409, "round-closed")
    assert (await slow).status_code == 202


async def test_intake_continues_while_a_change_waits_for_a_closing_round(api: Api, learning: Event) -> None:
    await api.create(SLOW)
    await api.create(SMALL)
    slow = asyncio.create_task(fill(api, "slow"))
    while not (await api.facts("slow"))["accepted"]:
        await asyncio.sleep(0.01)
    pause = asyncio.create_task(api.client.post("/experiments/slow/pause", headers=ADMIN))
    await asyncio.sleep(0.05)
    async with asyncio.timeout(20):
        assert (await fill(api, "test")).json()["accepted"] == 20
    assert not pause.done()
    learning.set()
    assert (await pause).status_code == 200
    assert (await slow).status_code == 202


async def test_deadlines_are_met_while_another_experiment_learns(settings, learning, monkeypatch):
    monkeypatch.setattr("privateer_server.rounds.background_checks._CHECK_INTERVAL_SECONDS", 0.01)
    async with serving(create_app(settings)) as client:
        api = Api(client)
        await api.create(SLOW)
        await api.create(SMALL)
        slow = asyncio.create_task(fill(api, "slow"))
        while not (await api.facts("slow"))["accepted"]:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        pause = await client.post("/experiments/test/pause", json={"seconds": 0.1}, headers=ADMIN)
        assert pause.status_code == 200
        async with asyncio.timeout(20):
            while (await api.facts("test"))["version"] != 2:
                await asyncio.sleep(0.01)
        assert not slow.done()
        learning.set()
        await slow


async def test_a_change_waits_for_the_round_of_its_experiment_alone(api: Api, learning: Event) -> None:
    await api.create(SLOW)
    await api.create(SMALL)
    slow = asyncio.create_task(fill(api, "slow"))
    while not (await api.facts("slow"))["accepted"]:
        await asyncio.sleep(0.01)
    assert (await api.client.post("/experiments/test/pause", headers=ADMIN)).status_code == 200
    pause = asyncio.create_task(api.client.post("/experiments/slow/pause", headers=ADMIN))
    await asyncio.sleep(0.05)
    assert not pause.done()
    learning.set()
    assert (await pause).status_code == 200
    assert (await slow).status_code == 202
    assert (await api.facts("slow"))["status"] == "paused"


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


@pytest.mark.parametrize("state", [state for state in RoundState if state is not RoundState.OPEN])
def test_reports_for_a_round_that_is_over_stay_sealed(round_and_key: Any, state: RoundState) -> None:
    """They would be refused anyway, and nobody's message should be in memory once its round is over."""
    current, _ = round_and_key
    header, sealed = header_for(current.publication), bytes(current.round.sealed_size)
    envelope = Envelope(header, sealed)
    upload = Request("test", lambda into, texts: into.count_upload(envelope, texts, True), envelope)
    assert upload.is_for(current)
    assert not upload.is_for(replace(current, state=state))


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
def test_grouped_uploads_have_the_outcome_of_single_uploads(round_and_key, monkeypatch, seed, good):
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


def test_few_uploads_of_a_group_are_processed_alone(round_and_key, monkeypatch):
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


FEW = {"experiment.horizon": 600, "algorithm.alpha": 0.2, "algorithm.participants_factor": 20, "privacy.min_batch": 12}
BAD: dict[str, Callable[[bytes], bytes]] = {
    "decryption-failed": lambda publication: os.urandom(decode_publication(publication).round.sealed_size),
    "out-of-range": lambda publication: seal(publication, os.urandom(16) + b"\xff\xff\x01"),
}


@pytest.mark.parametrize("reason", BAD)
async def test_bad_messages_are_one_refusal(api: Api, shuffler_key: Ed25519PrivateKey, reason: str) -> None:
    await api.client.post("/experiments", json=tables(FEW, "shuffle"), headers=ADMIN)
    publication = await api.publication()
    first_round = decode_publication(publication).round
    bad = b"".join(BAD[reason](publication) for _ in range(first_round.messages))
    messages = permuted(publication, [*sealed_reports(publication, first_round.batch_size - 1), bad], random.Random(3))
    body = body_of(publication, messages)
    answer = await api.client.post("/batches", content=body, headers={SIGNATURE_HEADER: BATCH.sign(body, shuffler_key)})
    assert answer.json() == {"accepted": first_round.batch_size - 1, "refused": {reason: 1}, "closed": True}
    facts = await api.facts()
    assert (facts["version"], facts["status"], facts["refused"]) == (2, "open", {reason: 1})
    state = (await api.client.get("/experiments/test/state")).json()["answer"]
    assert (state["rounds"], state["stage"]) == (1, "learning")
