"""The demo: an experiment from the first person to the policy, with a line for each step."""

import time
from pathlib import Path
from typing import Any, Final

from privateer_core.algorithms import read_spec
from privateer_core.spec.spec import Spec
from privateer_lab.cli.ask.experiment import policy_in
from privateer_lab.cli.ask.report import write
from privateer_lab.cli.output import open_folder, print_table, screen
from privateer_lab.load import run_load
from privateer_lab.load.driver import LoadResult
from privateer_lab.services.processes import Services
from privateer_lab.services.rest import ask, create
from privateer_lab.terminal import print_policy

_LEARNING_SECONDS: Final = 30.0
"""The most that the last round may take."""


def demo_spec(users: int, **experiment: Any) -> Spec:
    """Return the spec of the demo for ``users`` people, with other keys of its ``experiment`` if given."""
    spec = read_spec((Path(__file__).parent / "demo.toml").read_text(encoding="utf-8"))
    return spec.model_copy(update={"experiment": spec.experiment.model_copy(update={"horizon": users, **experiment})})


def run_demo(services: Services, users: int, picture: Path) -> str:
    """Create the demo's experiment, have people take part over HTTP, and show what was learned; return its page."""
    spec, say = demo_spec(users), screen.print
    page = f"{services.server}/experiments/{spec.name}"
    say(f"[bold]1[/] services: server {services.server}, shuffler {services.shuffler}")
    say(f"  watch it in a browser: {services.server}/")
    create(services.admin, spec, services.token)
    privacy = f"{spec.privacy.model} privacy with epsilon {spec.privacy.bound:g}, delta {spec.privacy.delta:g}"
    say(f"[bold]2[/] experiment {spec.name}: {len(spec.options)} arms, {len(spec.features)} features, {privacy}")
    say(f"[bold]3[/] {users:,} people decide on their devices and send one sealed, randomized report each")
    where = (spec.name, services.server, services.shuffler)
    result = run_load(*where, users=users, seed=1, sender_key=services.sender_key, each=_Milestones(users).tell)
    _wait_for_the_end(page)
    say("\n[bold]4[/] the policy, which everybody may read; the best arm changes from left to right at .375 and .625")
    print_policy(spec.name, policy_in(ask("GET", f"{page}/policy")["policy"]), spec.options)
    compared = {
        "learned policy": result.regret,
        "best constant arm": result.best_constant_regret,
        "arms at random": result.uniform_regret,
        "people": result.people,
        "reports counted": result.accepted,
        "people per second": result.people_per_second,
    }
    print_table("regret: the expected reward that people lost against the best arm for each of them", compared.items())
    open_folder(picture.parent, "--out")
    say("[bold]5[/] the same as a page with a picture, for a browser:")
    write(spec.name, services.server, picture)
    return page


def _wait_for_the_end(page: str) -> None:
    """Wait until the server has learned from the last round, which it does after it has taken the reports."""
    deadline = time.monotonic() + _LEARNING_SECONDS
    while ask("GET", page)["status"] == "open" and time.monotonic() < deadline:
        time.sleep(0.1)


class _Milestones:
    """Says at every tenth of the people how far learning is."""

    def __init__(self, users: int) -> None:
        self._users, self._told = users, 0

    def tell(self, so_far: LoadResult) -> None:
        """Print a line if another tenth is there."""
        tenth = 10 * so_far.people // self._users
        if tenth <= self._told:
            return
        self._told = tenth
        mean = so_far.regret / max(1, so_far.people)
        screen.print(
            f"  {so_far.people:7,} people, {so_far.rounds} rounds; reward lost so far: {mean:.3f} a person",
            highlight=False,
        )
