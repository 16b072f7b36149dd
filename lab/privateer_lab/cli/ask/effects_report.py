"""``effects``: what an experiment has found, as a document and a picture."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from privateer_core.answer import Answer
from privateer_lab.cli.ask.experiment import answer_in
from privateer_lab.cli.options import URL, Json, Url
from privateer_lab.cli.output import print_json
from privateer_lab.services.rest import ask
from privateer_lab.terminal import print_answer


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
    answer = ask("GET", f"{page}/result")
    found = answer_in(answer.get("result"))
    if markdown or plot:
        _write(name, found, ask("GET", f"{page}/privacy")["certificate"]["claims"], markdown, plot)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    print_answer(found)


def _write(name: str, answer: Answer, claims: list[dict[str, Any]], markdown: Path | None, plot: Path | None) -> None:
    from privateer_lab.pages import effect_report
    from privateer_lab.pages.plots import save

    if markdown:
        markdown.write_text(effect_report.markdown(name, answer, claims))
    if plot:
        save(effect_report.draw_effects(name, answer), plot)
