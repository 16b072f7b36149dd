"""The demo: an experiment from the first person to the policy, with a line for each step."""

from importlib.resources import files
from typing import Any

from privateer.spec import Spec, read_spec
from privateer_lab.bin_map import draw
from privateer_lab.load import LoadResult, run_load
from privateer_lab.output import print_table, screen
from privateer_lab.rest import ask, create
from privateer_lab.services import Services


def run_demo(services: Services, users: int) -> None:
    """Create the demo's experiment, let ``users`` simulated people take part over HTTP, and show what was learned."""
    spec = demo_spec(users)
    name = spec.name
    screen.print(f"[bold]1[/] services: server {services.server}, shuffler {services.shuffler}")
    create(services.admin, spec, services.token)
    screen.print(
        f"[bold]2[/] experiment {name}: {len(spec.options)} arms, {spec.dimension} features, shuffle privacy with "
        f"epsilon {spec.privacy.bound:g}, delta {spec.privacy.delta:g}"
    )
    screen.print(f"[bold]3[/] {users:,} people decide on their devices and send one sealed, randomized report each")
    where = (name, services.server, services.shuffler)
    result = run_load(*where, users=users, population={"name": "peaks"}, seed=1, sender_key=services.sender_key)
    _show(services, spec, result)


def demo_spec(users: int) -> Spec:
    """Return the spec of the demo, which comes with the lab, for ``users`` people."""
    spec = read_spec(_text())
    return spec.model_copy(update={"experiment": spec.experiment.model_copy(update={"horizon": users})})


def _text() -> str:
    return (files("privateer_lab") / "demo.toml").read_text(encoding="utf-8")


def _show(services: Services, spec: Spec, result: LoadResult) -> None:
    policy = ask("GET", f"{services.server}/experiments/{spec.name}/policy")
    screen.print(
        "\n[bold]4[/] the policy, which everybody may read; the best arm changes from left to right at .375 and .625"
    )
    screen.print(draw(policy["policy"]["bins"], list(spec.options)))
    print_table("regret: the expected reward that people lost against the best arm for each of them", _comparison(result))


def print_addresses(services: Services) -> None:
    """Say where to look while the services run."""
    url = f"{services.server}/experiments/{read_spec(_text()).name}"
    screen.print(
        f"The services run until you interrupt them. Look next:\n  GET {url}          progress, and refused reports by reason\n"
        f"  GET {url}/privacy  what the experiment promises to each person\n"
        f"  GET {url}/history  all rounds"
    )


def _comparison(result: LoadResult) -> list[tuple[str, Any]]:
    return [
        ("learned policy", result.regret),
        ("best constant arm", result.best_constant_regret),
        ("arms at random", result.uniform_regret),
        ("people", result.people),
        ("reports counted", result.accepted),
        ("people per second", result.people_per_second),
    ]
