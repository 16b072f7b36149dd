"""``effects``: what an experiment has found, as a document and a picture."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from privateer_core.errors import Unavailable
from privateer_core.result import Result
from privateer_lab.commands.experiments import print_result
from privateer_lab.commands.options import URL, Json, Url
from privateer_lab.output import print_json
from privateer_lab.rest import ask


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(effects)


def effects(
    name: Annotated[str, typer.Argument(help="Name of the experiment.")],
    url: Url = URL,
    markdown: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report as Markdown.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw FILE.png and FILE.svg.")] = None,
    as_json: Json = False,
) -> None:
    """Show what an experiment has found: estimates with intervals, and all that its algorithm reports beside them."""
    page = f"{url}/experiments/{name}"
    result = _checked(ask("GET", f"{page}/result").get("result"))
    if markdown or plot:
        _write(name, result, ask("GET", f"{page}/privacy")["certificate"]["claims"], markdown, plot)
    if as_json:
        print_json(result)
        return
    print_result(result)


def _checked(answer: Any) -> dict[str, Any]:
    """Refuse what is not a result: names that control a terminal, or figures that are none."""
    try:
        found: dict[str, Any] = msgspec.to_builtins(msgspec.convert(answer, Result))
    except msgspec.ValidationError:
        raise Unavailable("the answer is not a result", field="--url", remedy="correct the address") from None
    return found


def _write(
    name: str, result: dict[str, Any], claims: list[dict[str, Any]], markdown: Path | None, plot: Path | None
) -> None:
    from privateer_lab import effect_report
    from privateer_lab.plots import save

    if markdown:
        markdown.write_text(effect_report.markdown(name, result, claims))
    if plot:
        save(effect_report.draw_effects(name, result), plot)
