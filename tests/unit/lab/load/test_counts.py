"""The counts of an upload's participants after each response."""

import msgspec
import pytest

from privateer_client.delivery import EndpointAnswer
from privateer_core.wire.problem import problem_type
from privateer_lab.load.driver import LoadResult
from privateer_lab.load.wire import UploadCounts


def make_answer(status: int, slug: str = "", **members: object) -> EndpointAnswer:
    return EndpointAnswer(status, msgspec.json.encode({"type": problem_type(slug)} | members))


def count_answers(*answers: EndpointAnswer) -> tuple[int, dict[str, int], bool]:
    counts = UploadCounts(10)
    for number, answer in enumerate(answers):
        counts.update(answer, number > 0)
    return counts.accepted, counts.refused, counts.is_pending


SOME = EndpointAnswer(202, b'{"accepted": 6, "refused": {"unavailable": 4}}')


@pytest.mark.parametrize(
    ("answers", "counted"),
    [
        ([], (0, {"pending": 10}, True)),
        ([EndpointAnswer(202, b'{"accepted": 10, "refused": {}}')], (10, {}, False)),
        ([EndpointAnswer(202, b"<html>")], (0, {"pending": 10}, True)),
        ([EndpointAnswer(202, b'{"accepted": "many"}')], (0, {"pending": 10}, True)),
        ([make_answer(409, "round-closed")], (0, {"round-closed": 10}, False)),
        ([make_answer(503, "unavailable", refused={"unavailable": 10})], (0, {"pending": 10}, True)),
        ([make_answer(409, "round-closed", refused={"round-closed": 4, "duplicate-report": 6})],
         (0, {"round-closed": 4, "duplicate-report": 6}, False)),
        ([EndpointAnswer(500), make_answer(409, "round-closed", refused={"round-closed": 4, "duplicate-report": 6})],
         (6, {"round-closed": 4}, False)),
        ([EndpointAnswer(500), make_answer(409, "duplicate-report")], (10, {}, False)),
        ([SOME], (6, {"unavailable": 4}, True)),
        ([SOME, EndpointAnswer(202, b'{"accepted": 4, "refused": {"duplicate-report": 6}}')], (10, {}, False)),
        ([SOME, make_answer(503, "unavailable")], (6, {"pending": 4}, True)),
        ([SOME, make_answer(409, "round-closed", refused={"round-closed": 10})], (6, {"round-closed": 4}, False)),
    ],
)  # fmt: skip
def test_people_of_an_upload_are_all_counted_once(
    answers: list[EndpointAnswer], counted: tuple[int, dict[str, int], bool]
) -> None:
    assert count_answers(*answers) == counted
    assert counted[0] + sum(counted[1].values()) == 10


def test_people_without_invitation_do_not_count() -> None:
    """Planted: 10,000 people for an experiment of 5,700, of whom 4,300 only choose."""
    figures = LoadResult(people=10_000, not_asked=4300, accepted=5700).as_dict()
    assert (figures["took_part"], figures["not_asked"], figures["refused"]) == (5700, 4300, {})
