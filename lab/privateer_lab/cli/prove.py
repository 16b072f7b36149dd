"""``audit``, ``review``, ``identity``, ``audit-log``: attacks, a pack for reviewers, a public log."""

import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import httpx
import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from typer import Argument, Option

from privateer_core.errors import SignatureInvalid, SpecError, printable
from privateer_core.wire.identity import fingerprint, parse_public_keys
from privateer_core.wire.keys import read_signing_key
from privateer_core.wire.merkle import Peaks
from privateer_core.wire.transparency_log import Head
from privateer_lab.audit.transparency_log import AuditorState, LogContradiction, LogSource, audit_log, check_same_log
from privateer_lab.cli.command_line import URL, Json, Url
from privateer_lab.cli.output import announce_task, open_folder, print_json, print_table, progress, screen
from privateer_lab.render.words import format_figure

if TYPE_CHECKING:
    from privateer_lab.audit.case import AuditFinding

_REVIEW_SAMPLES = 20_000
_TIMEOUT_SECONDS = 30.0
_KEY_FILE = "identity.key"
_Address = Annotated[str, Argument(metavar="URL", help="The server's address.")]
_Key = Annotated[str, Option("--server-key", help="The server's public key; by default the first one met.")]
_State = Annotated[Path, Option(help="File that remembers what was checked.")]
_Evidence = Annotated[Path, Option(help="File for evidence, if there is any.")]
_Against = Annotated[
    list[str],
    Option(help="A head that others were shown: a file, an auditor's audit-log.json, or an address; repeatable."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (audit, review):
        app.command()(command)
    group = typer.Typer(help="Check a server's public log, and show the key that signs it.", no_args_is_help=True)
    group.command(name="check")(check_log)
    group.command(name="key")(show_key)
    app.add_typer(group, name="log")


def audit(
    mechanism: Annotated[list[str], Option(help="Attack this mechanism or algorithm alone; may be repeated.")] = [],  # noqa: B006
    samples: Annotated[int, Option(min=1000, help="Reports of each neighbour, where they are cheap.")] = 200_000,
    as_json: Json = False,
) -> None:
    """Attack every claim through the code that devices and services run; exit code 1 if one is broken."""
    from privateer_lab.audit.suite import run_audit, summarize_findings, target_names

    targets = target_names()
    if set(mechanism) - targets:
        remedy = f"choose from {', '.join(sorted(targets))}"
        raise SpecError("no such mechanism or algorithm", field="--mechanism", remedy=remedy)
    total, findings = run_audit(samples, set(mechanism) or targets)
    if not as_json:
        announce_task(f"{total} attacks with up to {samples:,} reports each", "seconds to minutes each")
    collected = progress(findings, total, "attacks")
    if len(collected) < total:
        raise typer.Exit(130)
    result = summarize_findings(collected)
    print_json(result) if as_json else _print_findings(collected)
    if result["unsafe"] and not as_json:
        screen.print(f"broken as its paper has it, in simulation alone: {', '.join(result['unsafe'])}")
    if not result["holds"]:
        if not as_json:
            screen.print(f"broken: {', '.join(result['broken'])}")
        raise typer.Exit(1)


def _print_findings(findings: list["AuditFinding"]) -> None:
    """Print a table of findings; verdicts that do not hold are in capitals."""
    table = Table(title="audit", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("mechanism", "attack", "claimed", "proved", "law", "samples", "verdict"):
        justify: Literal["left", "right"] = "right" if name in ("proved", "law", "samples") else "left"
        table.add_column(name, justify=justify, no_wrap=name != "attack")
    for row in findings:
        claimed = "" if row.epsilon is None else f"{row.epsilon:.4g}" + (f", {row.delta:g}" if row.delta else "")
        proved = "" if row.lower_bound is None else f"{row.lower_bound:z.3f}"
        verdict = row.verdict if row.holds else row.verdict.upper()
        terms = "" if row.model == "any" else f"{row.model}, {row.calibration}: "
        law = "" if row.law is None else f"{row.law:.2g}"
        table.add_row(row.mechanism, terms + row.attack, claimed, proved, law, format_figure(row.samples), verdict)
    screen.print(table)


def review(
    named: Annotated[str, Argument(metavar="NAME|SPEC.toml", help="An experiment, or a spec before it starts.")],
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the files.")] = Path("review"),
    url: Url = URL,
    audit: Annotated[
        Path | None, Option(metavar="FILE", help="Attach this audit (privateer audit --json) and run none.")
    ] = None,
    no_audit: Annotated[bool, Option("--no-audit", help="Run no audit.")] = False,
    samples: Annotated[
        int, Option(min=1000, help="Reports of each neighbour that the audit makes, where they are cheap.")
    ] = _REVIEW_SAMPLES,
    facts: Annotated[
        Path | None, Option(metavar="FILE", help="What people alone know, as TOML (docs/review.md).")
    ] = None,
) -> None:
    """Write a review pack: who sees what, promise and risk, certificate, audit, retention, NIST SP 800-226, registry.

    The exit code is 1 if a claim does not hold, or an attack broke one.
    """
    from privateer_lab.pages.review.document import make_review, write_pack
    from privateer_lab.pages.review.evidence import read_audit, run_audit
    from privateer_lab.pages.review.subject import read_facts, read_subject

    if audit and no_audit:
        raise SpecError("cannot be given with --audit", field="--no-audit", remedy="give one of them")
    facts_given, subject = read_facts(facts), read_subject(named, url)
    evidence = read_audit(audit, subject.spec, subject.record) if audit else None
    open_folder(out, "--out")  # before the audit, which takes minutes; and nothing is made for a wrong name
    if not audit and not no_audit:
        announce_task(f"attacking what {named} claims, with up to {samples:,} reports each", "minutes")
        evidence = run_audit(subject.spec, subject.record, samples)
    pack = make_review(subject, evidence, facts_given)
    for path in write_pack(pack, out):
        screen.print(f"{path}: {path.stat().st_size:,} bytes", soft_wrap=True, markup=False)
    if not pack.holds:
        screen.print("not everything holds: see the page")
        raise typer.Exit(1)


def show_key(
    url: Url = URL,
    data: Annotated[
        Path | None, Option(help="The server's data folder, that of privateer up, or the key file, on this machine.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the key that a server signs with: applications pin it. A key that is read from the disk is certain."""
    if data is not None:
        key = read_signing_key(_key_file(data), "--data").public_key().public_bytes_raw()
    else:
        with httpx.Client(timeout=_TIMEOUT_SECONDS) as http:
            key = LogSource(url, http, "--url").fetch_key()
    key_rows = {"key": key.hex(), "fingerprint": fingerprint(key)}
    print_json(key_rows) if as_json else print_table("signing key", key_rows.items())


def _key_file(data: Path) -> Path:
    """Return the path of the key: the file itself, or in the folder of a server; refuse a folder without it."""
    candidates = (data / _KEY_FILE, data / "server" / _KEY_FILE) if data.is_dir() else (data,)
    if path := next((candidate for candidate in candidates if candidate.exists()), None):
        return path
    remedy = f"name the server's data folder, or its {_KEY_FILE}"
    raise SpecError(f"{data} is not there, or has no {_KEY_FILE}", field="--data", remedy=remedy)


def check_log(
    url: _Address,
    state: _State = Path("audit-log.json"),
    server_key: _Key = "",
    against: _Against = [],  # noqa: B006 - typer makes a list of its own
    evidence: _Evidence = Path("evidence.json"),
) -> None:
    """Check all that is new in a server's public log; exit with 1, and write evidence, if something does not hold.

    Run it now and then. It keeps the last head, and demands that the log goes on from it. With --against it also checks
    that others were shown the same log: devices export their heads (client.head), and auditors keep theirs (--state).
    """
    keys, previous = parse_public_keys(server_key, "--server-key"), _read_state(state)
    if len(keys) > 1:
        raise SpecError("is more than one key", field="--server-key", remedy="name the one that signs now")
    with httpx.Client(timeout=_TIMEOUT_SECONDS) as http:
        source = LogSource(url, http)
        try:
            new_state, findings = audit_log(source, next(iter(keys), None), previous)
            for other in against:
                check_same_log(source, new_state, _read_head(other, http))
        except LogContradiction as contradiction:
            evidence.write_text(json.dumps(contradiction.evidence, indent=1) + "\n")
            message = printable(str(contradiction))  # a log has names that its server made up
            screen.print(f"{message}\nThe evidence is in {evidence}.", soft_wrap=True, markup=False)
            raise typer.Exit(1) from None
    state.write_bytes(msgspec.json.format(msgspec.json.encode(new_state)) + b"\n")
    counts = [("entries", findings.size), ("new", findings.entries), ("publications read", findings.read)]
    counts += [("not served any more", findings.unserved), ("heads compared", len(against))]
    print_table("the log holds", [*counts, ("key", new_state.key)])


def _read_state(path: Path) -> AuditorState | None:
    """Read what an earlier audit wrote, None without a file; refuse another file."""
    if not path.exists():
        return None
    try:
        state = msgspec.json.decode(path.read_bytes(), type=AuditorState)
        Peaks(Head.verify(state.head, bytes.fromhex(state.key)).size, state.peaks)
    except (OSError, ValueError, SignatureInvalid):
        remedy = "name another file: a new one trusts the log as it is"
        raise SpecError(f"{path.name} is not the state of an audit", field="--state", remedy=remedy) from None
    return state


def _read_head(other: str, http: httpx.Client) -> str:
    """Read a head from a file, an auditor's state, or a server's address; refuse other text."""
    if other.startswith(("http://", "https://")):
        return LogSource(other, http, "--against").fetch_head_text()
    try:
        head = Path(other).read_text()
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {other}", field="--against", remedy="name a file, or an address") from None
    with suppress(msgspec.DecodeError, RecursionError):
        head = msgspec.json.decode(head, type=AuditorState).head
    if not Head.is_head_text(head):
        hint = "give what client.head says, another auditor's audit-log.json, or a copy of the server's page /log/head"
        raise SpecError(f"{other} is not the head of a log", field="--against", remedy=hint)
    return head
