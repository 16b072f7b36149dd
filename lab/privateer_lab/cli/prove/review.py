"""``review``: what lawyers and reviewers need to know of an experiment, as a folder of files."""

from pathlib import Path
from typing import Annotated

import typer

from privateer_core.errors import SpecError
from privateer_lab.cli.options import URL, Url
from privateer_lab.cli.output import open_folder, screen

_SAMPLES = 20_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(review)


def review(
    named: Annotated[str, typer.Argument(metavar="NAME|SPEC.toml", help="An experiment, or a spec before it starts.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the files.")] = Path("review"),
    url: Url = URL,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Attach this audit (privateer audit --json) and run none.")
    ] = None,
    no_audit: Annotated[bool, typer.Option("--no-audit", help="Run no audit.")] = False,
    samples: Annotated[
        int, typer.Option(min=1000, help="Reports of each neighbour that the audit makes, where they are cheap.")
    ] = _SAMPLES,
    facts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What people alone know, as TOML (docs/review.md).")
    ] = None,
) -> None:
    """Write a review pack: who sees what, promise and risk, certificate, audit, retention, NIST SP 800-226, registry.

    The exit code is 1 if a claim does not hold, or an attack broke one.
    """
    from privateer_lab.pages.review.document import make_review
    from privateer_lab.pages.review.evidence import read_audit, run_audit
    from privateer_lab.pages.review.page import write
    from privateer_lab.pages.review.subject import read_facts, subject_of

    if audit and no_audit:
        raise SpecError("cannot be given with --audit", field="--no-audit", remedy="give one of them")
    said, subject = read_facts(facts), subject_of(named, url)
    evidence = read_audit(audit, subject.spec, subject.record) if audit else None
    open_folder(out, "--out")  # before the audit, which takes minutes; and nothing is made for a wrong name
    if not audit and not no_audit:
        evidence = run_audit(subject.spec, subject.record, samples)
    made = make_review(subject, evidence, said)
    for path in write(made, out):
        screen.print(f"{path}: {path.stat().st_size:,} bytes", soft_wrap=True, markup=False)
    if not made.holds:
        screen.print("not everything holds: see the page")
        raise typer.Exit(1)
