"""An adversary polls the shuffler's pages to learn when a certain participant reports."""

import httpx
import pytest

from tests.unit.shuffler.conftest import server, settings, shuffler  # noqa: F401
from tests.unit.shuffler.helpers import Shuffler, sealed_reports

BATCH = 200


async def read_pages(shuffler: Shuffler) -> tuple[str, str, dict[str, object]]:  # noqa: F811
    """Return metrics, counts and facts without the lines of the clock and of the disk, which others change, too."""
    read = [(await shuffler.client.get(page)).text for page in ("/metrics", "/held")]
    changing = ("privateer_shuffler_time_seconds ", "privateer_shuffler_disk_free_bytes ")
    lines = [line for line in read[0].splitlines() if not line.startswith(changing)]
    assert len(lines) == len(read[0].splitlines()) - len(changing)
    return "\n".join(lines), read[1], await shuffler.facts()


async def post_late_report(shuffler: Shuffler) -> httpx.Response:  # noqa: F811
    header = shuffler.server.publish(version=3, batch=BATCH)
    await shuffler.reaches(3)
    old = type(header)(header.experiment, 2, header.key_id, header.digest)
    before = await read_pages(shuffler)
    response = await shuffler.post(old, sealed_reports(1))
    assert await read_pages(shuffler) == before
    return response


@pytest.mark.parametrize("n_earlier", [0, 7, 18])
async def test_a_report_changes_nothing_that_a_watcher_sees(shuffler: Shuffler, n_earlier: int) -> None:  # noqa: F811
    """Accepted, repeated, late and truncated reports leave all pages as they were."""
    header = shuffler.server.publish(version=2, batch=BATCH)
    await shuffler.post(header, sealed_reports(n_earlier) or [b""])
    before, (report,) = await read_pages(shuffler), sealed_reports(1)
    for sealed, status in ((report, 202), (report, 409), (report[:-1], 400)):
        assert (await shuffler.post(header, [sealed])).status_code == status
        assert await read_pages(shuffler) == before
    assert (await post_late_report(shuffler)).status_code == 409


async def test_an_operator_sees_tenths_of_a_batch(shuffler: Shuffler) -> None:  # noqa: F811
    header = shuffler.server.publish(batch=BATCH)
    await shuffler.post(header, sealed_reports(19))
    before = await read_pages(shuffler)
    await shuffler.post(header, sealed_reports(1))
    after = await read_pages(shuffler)
    assert before[0].replace("held 0.0", "held 20.0") == after[0]


async def test_pages_hide_a_report_from_someone_who_filled_the_batch(shuffler: Shuffler) -> None:  # noqa: F811
    """A stranger fills the batch to just below a step, whatever the step: the next person's report changes no page."""
    header = shuffler.server.publish(batch=BATCH)
    facts_by_report = []
    for report in sealed_reports(BATCH - 1):
        assert (await shuffler.post(header, [report])).status_code == 202
        facts_by_report.append(await shuffler.facts())
    assert facts_by_report == [facts_by_report[0]] * (BATCH - 1)
    assert facts_by_report[0]["open"] is True


async def test_an_abandoned_round_hides_the_number_of_its_reports(shuffler: Shuffler) -> None:  # noqa: F811
    dropped_counts = []
    for version, n_reports in ((1, 21), (3, 39)):
        await shuffler.post(shuffler.server.publish(version=version, batch=BATCH), sealed_reports(n_reports))
        before = await shuffler.metric("reports_dropped_total")
        shuffler.server.publish(version=version + 1, batch=BATCH)
        await shuffler.reaches(version + 1)
        dropped_counts.append(await shuffler.metric("reports_dropped_total") - before)
    assert dropped_counts == [20, 20]


async def test_metrics_of_the_process_are_not_published(shuffler: Shuffler) -> None:  # noqa: F811
    """Collections of garbage, memory and processor time follow every request."""
    text, *_ = await read_pages(shuffler)
    names = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert names
    assert {name for name in names if not name.startswith("privateer_shuffler_")} == {"process_start_time_seconds"}
