"""Somebody watches the shuffler's pages all the time, to learn when a certain person reports."""

import httpx
import pytest

from tests.unit.shuffler.conftest import server, settings, shuffler  # noqa: F401
from tests.unit.shuffler.helpers import Shuffler, sealed_reports

BATCH = 200


async def pages(shuffler: Shuffler) -> tuple[str, str, dict[str, object]]:  # noqa: F811
    """What the operator may read, and what anybody may; but for the clock, which moves by itself."""
    read = [(await shuffler.client.get(page)).text for page in ("/metrics", "/held")]
    lines = [line for line in read[0].splitlines() if not line.startswith("privateer_shuffler_time_seconds ")]
    assert len(lines) == len(read[0].splitlines()) - 1
    return "\n".join(lines), read[1], await shuffler.facts()


async def late(shuffler: Shuffler) -> httpx.Response:  # noqa: F811
    header = shuffler.server.publish(version=3, batch=BATCH)
    await shuffler.reaches(3)
    old = type(header)(header.experiment, 2, header.key_id, header.digest)
    before = await pages(shuffler)
    answer = await shuffler.post(old, sealed_reports(1))
    assert await pages(shuffler) == before
    return answer


@pytest.mark.parametrize("already", [0, 7, 18])
async def test_a_report_changes_nothing_that_a_watcher_sees(shuffler: Shuffler, already: int) -> None:  # noqa: F811
    """Neither one that is held, nor the same bytes again, nor one that comes late, nor one cut short."""
    header = shuffler.server.publish(version=2, batch=BATCH)
    await shuffler.post(header, sealed_reports(already) or [b""])
    before, (report,) = await pages(shuffler), sealed_reports(1)
    for sealed, status in ((report, 202), (report, 409), (report[:-1], 400)):
        assert (await shuffler.post(header, [sealed])).status_code == status
        assert await pages(shuffler) == before
    assert (await late(shuffler)).status_code == 409


async def test_an_operator_sees_tenths_of_a_batch(shuffler: Shuffler) -> None:  # noqa: F811
    header = shuffler.server.publish(batch=BATCH)
    await shuffler.post(header, sealed_reports(19))
    before = await pages(shuffler)
    await shuffler.post(header, sealed_reports(1))
    after = await pages(shuffler)
    assert before[0].replace("held 0.0", "held 20.0") == after[0]


async def test_somebody_who_primes_the_count_sees_no_report_flip_it(shuffler: Shuffler) -> None:  # noqa: F811
    """A stranger fills the batch to just below a step, whatever the step: the next person's report changes no page."""
    header = shuffler.server.publish(batch=BATCH)
    seen = []
    for report in sealed_reports(BATCH - 1):
        assert (await shuffler.post(header, [report])).status_code == 202
        seen.append(await shuffler.facts())
    assert seen == [seen[0]] * (BATCH - 1)
    assert seen[0]["open"] is True


async def test_a_round_that_is_given_up_does_not_tell_how_many_had_come(shuffler: Shuffler) -> None:  # noqa: F811
    seen = []
    for version, held in ((1, 21), (3, 39)):
        await shuffler.post(shuffler.server.publish(version=version, batch=BATCH), sealed_reports(held))
        before = await shuffler.metric("reports_dropped_total")
        shuffler.server.publish(version=version + 1, batch=BATCH)
        await shuffler.reaches(version + 1)
        seen.append(await shuffler.metric("reports_dropped_total") - before)
    assert seen == [20, 20]


async def test_the_process_tells_nothing_of_its_own(shuffler: Shuffler) -> None:  # noqa: F811
    """Collections of garbage, memory and processor time follow every request."""
    text, *_ = await pages(shuffler)
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert names
    assert all(name.startswith("privateer_shuffler_") for name in names)
