"""`create --check` accepts a spec if and only if the services do, also near their limits."""

import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import numpy as np
import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.errors import SpecError
from privateer_core.privacy.trust import Recipient
from privateer_core.serving.admission import ServerLimits, ShufflerLimits
from privateer_core.spec.spec import Spec
from privateer_lab.cli.command_line import main
from privateer_lab.planning.admission import KnownLimits, check_admission
from privateer_lab.services.processes import free_port, run_services
from privateer_server.app import create_app as create_server
from privateer_server.settings import ServerSettings
from privateer_shuffler.app import create_app as create_shuffler
from privateer_shuffler.settings import ShufflerSettings
from tests.support.asgi import serving
from tests.support.phased import tables as phased_tables
from tests.support.servers import ADMIN, TOKEN
from tests.support.specs import tables

EXAMPLES = Path(__file__).parents[2] / "examples"
BY_DAY = {"dpe", "stations", "peaks-shuffle", "peaks-local", "trial"}
SIZES = [8, *[24] * 8]
"""200 specs in blocks, the first by day."""
FLOOR = 120
SETTING = re.compile(r"(PRIVATEER_\w+)=(\d+)(?= at the| and PRIV)")


class BothServices(NamedTuple):
    """A server and a shuffler in this process."""

    server: httpx.AsyncClient
    shuffler: httpx.AsyncClient

    async def limits(self) -> KnownLimits:
        answers = [(await service.get("/limits")).json() for service in self]
        return KnownLimits(msgspec.convert(answers[0], ServerLimits), msgspec.convert(answers[1], ShufflerLimits))

    async def take(self, spec: Spec) -> str:
        """Create an experiment, and have the shuffler open its round; return why they do not, empty if they do."""
        body = spec.without_people().model_dump(mode="json", exclude_none=True)
        created = await self.server.post("/experiments", json=body, headers=ADMIN)
        if created.status_code != httpx.codes.CREATED:
            problem = created.json()
            return f"{problem['field']}: {problem['detail']}"
        if spec.privacy.trust.endpoint is not Recipient.SHUFFLER:
            return ""
        return (
            "" if (await self.shuffler.get(f"/experiments/{spec.name}")).json()["open"] else "the shuffler takes none"
        )


@asynccontextmanager
async def both(folder: Path, server: dict[str, int], shuffler: dict[str, int]) -> AsyncIterator[BothServices]:
    async with AsyncExitStack() as stack:
        trusted = (folder / "trusted",)
        app = create_server(ServerSettings(data=folder / "server", admin_token=TOKEN, shuffler_keys=trusted, **server))
        data: Any = {"data": folder / "shuffler", "public_key_file": folder / "trusted" / "one.pub", **shuffler}
        settings = ShufflerSettings(server_url="http://server", **data)
        clients = [await stack.enter_async_context(serving(app))]
        clients.append(await stack.enter_async_context(serving(create_shuffler(settings, httpx.ASGITransport(app)))))
        yield BothServices(*clients)


def check(spec: Spec, limits: KnownLimits) -> str:
    """Why create --check refuses a spec; empty if it does not."""
    try:
        check_admission(spec.without_people(), limits)
    except SpecError as error:
        return str(error)
    return ""


def spec_near_limits(rng: np.random.Generator, name: str) -> Spec:
    """Make a spec with a smallest round near the floor, or with uploads or batches near the limit."""
    people = int(rng.integers(FLOOR - 4, FLOOR + 5))
    kind = rng.integers(4)
    if kind == 0:  # rounds of one size, at the floor
        shuffled = {"model": "shuffle", "delta": 1e-6, "min_batch": people, "epsilon": 1.0}
        return parse_spec(
            tables(
                {"experiment.name": name, "experiment.round_size": people, "experiment.min_round_fraction": 0.0}
                | {"experiment.horizon": 20 * people, "privacy": shuffled}
            )
        )
    if kind == 1:  # the first phase at the floor, batches from 60 KB to some MB
        clients = people / 2**0.2
        horizon = int(rng.choice([600, 1500, 4000]))
        changes = {"experiment.name": name, "experiment.horizon": horizon, "actions.count": 6, "algorithm.alpha": 0.2}
        changes |= {"algorithm.participants_factor": clients, "privacy.min_batch": 2, "privacy.honest_fraction": 1.0}
        return parse_spec(phased_tables(changes | {"privacy.epsilon": float(rng.uniform(1, 8))}, "shuffle"))
    arms = [f"arm-{place}" for place in range(int(rng.integers(2, 12)))]
    features = {f"x{place}": {"low": 0.0, "high": 1.0} for place in range(int(rng.integers(2, 6)))}
    changes = {"experiment.name": name, "experiment.arms": arms, "context.features": features}
    model = {"model": "central", "epsilon": 1.0, "delta": 1e-6}
    return parse_spec(tables(changes | {"algorithm": {"name": "additive"}, "privacy": model}))


async def disagreements(services: BothServices, limits: KnownLimits, specs: list[Spec]) -> tuple[int, list[str]]:
    """Return how many specs the services take, and the specs of which the check says otherwise."""
    n_taken, messages = 0, []
    for spec in specs:
        reason, refusal = check(spec, limits), await services.take(spec)
        n_taken += not refusal
        if bool(reason) != bool(refusal) or (":" in refusal and not reason.startswith(refusal)):
            messages.append(f"{spec.name}: check {reason!r}, services {refusal!r}")
    return n_taken, messages


def specs_of_block(block: int) -> list[Spec]:
    rng = np.random.default_rng([51, block])
    return [spec_near_limits(rng, f"near-{block}-{place}") for place in range(SIZES[block])]


TIGHT_SERVER = {"report_bytes_max": 4096, "batch_bytes_max": 4_500_000}
TIGHT_SHUFFLER = {"min_batch": FLOOR}


@pytest.mark.parametrize(
    "block", [pytest.param(block, marks=[pytest.mark.nightly] if block else []) for block in range(len(SIZES))]
)
async def test_check_and_services_agree_of_specs_near_limits(tmp_path: Path, block: int) -> None:
    async with both(tmp_path, TIGHT_SERVER, TIGHT_SHUFFLER) as services:
        n_taken, messages = await disagreements(services, await services.limits(), specs_of_block(block))
    assert messages == []
    assert 0 < n_taken < SIZES[block]


async def test_a_check_by_other_limits_disagrees(tmp_path: Path) -> None:
    """Planted: limits as shipped in the place of those that the services publish."""
    async with both(tmp_path, TIGHT_SERVER, TIGHT_SHUFFLER) as services:
        _, messages = await disagreements(services, KnownLimits(), specs_of_block(0))
    assert messages


async def test_one_message_names_every_setting_that_the_largest_example_needs(tmp_path: Path) -> None:
    spec = parse_spec(tomllib.loads((EXAMPLES / "dpe.toml").read_text()))
    reason = check(spec, KnownLimits())
    settings = {name.removeprefix("PRIVATEER_").lower(): int(value) for name, value in SETTING.findall(reason)}
    assert settings.keys() == {"batch_bytes_max", "body_budget", "min_batch"}
    page = (EXAMPLES.parent / "docs" / "operations" / "limits.md").read_text()
    assert all(f"{name}={value}" in page for name, value in SETTING.findall(reason))
    async with both(tmp_path, {}, {}) as services:
        assert await services.take(spec)
    floor = {"min_batch": settings.pop("min_batch")}
    async with both(tmp_path / "raised", settings, floor) as services:
        assert check(spec, await services.limits()) == await services.take(spec) == ""


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with run_services(tmp_path_factory.mktemp("services"), free_port(), free_port(), quiet=True) as services:
        yield services


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(path.stem, marks=[] if path.stem in BY_DAY else [pytest.mark.nightly])
        for path in sorted(EXAMPLES.glob("*.toml"))
    ],
)
def test_create_accepts_an_example_if_and_only_if_check_does(example, at, monkeypatch, tmp_path, capsys):
    named = {"URL": at.server, "ADMIN_URL": at.admin, "SHUFFLER_URL": at.shuffler, "ADMIN_TOKEN": at.token}
    for name, value in (named | {"LEDGER": str(tmp_path / "ledger.db")}).items():
        monkeypatch.setenv(f"PRIVATEER_{name}", value)

    def create(*options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            main(["create", str(EXAMPLES / f"{example}.toml"), *options])
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), err or out

    code, text = create("--check")
    assert "as shipped" not in text
    created = create()
    assert created == ((2, text) if code else (0, f"created {example}\n"))
    listed = httpx.get(f"{at.server}/experiments").json()["experiments"]
    assert (example in [row["name"] for row in listed]) == (code == 0)
    assert (code, len(SETTING.findall(text))) == ((2, 3) if example == "dpe" else (0, 0))
