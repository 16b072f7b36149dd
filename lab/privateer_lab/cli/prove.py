"""``audit``, ``review``, ``identity``, ``audit-log``: attacks, a pack for reviewers, a public log."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import httpx
import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from privateer_core.errors import SignatureInvalid, SpecError, printable
from privateer_core.wire.identity import fingerprint, read_keys
from privateer_core.wire.keys import read_signing_key
from privateer_core.wire.merkle import Peaks
from privateer_core.wire.transparency_log import Head
from privateer_lab.audit.transparency_log import AuditorState, LogContradiction, LogSource, compare
from privateer_lab.audit.transparency_log import audit as checked
from privateer_lab.cli.command_line import URL, Json, Url
from privateer_lab.cli.output import begin, open_folder, print_json, print_table, progress, screen
from privateer_lab.figures import readable

if TYPE_CHECKING:
    from privateer_lab.audit.finding import AuditFinding

_SAMPLES = 20_000
_SECONDS = 30.0
_KEY_FILE = "identity.key"
_Address = Annotated[str, typer.Argument(metavar="URL", help="The server's address.")]
_Key = Annotated[str, typer.Option("--server-key", help="The server's public key; by default the first one met.")]
_State = Annotated[Path, typer.Option(help="File that remembers what was checked.")]
_Evidence = Annotated[Path, typer.Option(help="File for evidence, if there is any.")]
_Against = Annotated[
    list[str],
    typer.Option(help="A head that others were shown: a file, an auditor's audit-log.json, or an address; repeatable."),
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
    mechanism: Annotated[
        list[str], typer.Option(help="Attack this mechanism or algorithm alone; may be repeated.")
    ] = [],  # noqa: B006
    samples: Annotated[int, typer.Option(min=1000, help="Reports of each neighbour, where they are cheap.")] = 200_000,
    as_json: Json = False,
) -> None:
    """Attack every claim through the code that devices and services run; exit code 1 if one is broken."""
    from privateer_lab.audit.suite import audit as run_audit
    from privateer_lab.audit.suite import mechanisms, summary

    known = mechanisms()
    if set(mechanism) - known:
        remedy = f"choose from {', '.join(sorted(known))}"
        raise SpecError("no such mechanism or algorithm", field="--mechanism", remedy=remedy)
    total, findings = run_audit(samples, set(mechanism) or known)
    if not as_json:
        begin(f"{total} attacks with up to {samples:,} reports each", "seconds to minutes each")
    found = progress(findings, total, "attacks")
    if len(found) < total:
        raise typer.Exit(130)
    result = summary(found)
    print_json(result) if as_json else _print(found)
    if result["unsafe"] and not as_json:
        screen.print(f"broken as its paper has it, in simulation alone: {', '.join(result['unsafe'])}")
    if not result["holds"]:
        if not as_json:
            screen.print(f"broken: {', '.join(result['broken'])}")
        raise typer.Exit(1)


def _print(found: list["AuditFinding"]) -> None:
    table = Table(title="audit", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in ("mechanism", "attack", "claimed", "proved", "law", "samples", "verdict"):
        justify: Literal["left", "right"] = "right" if name in ("proved", "law", "samples") else "left"
        table.add_column(name, justify=justify, no_wrap=name != "attack")
    for row in found:
        claimed = "" if row.epsilon is None else f"{row.epsilon:.4g}" + (f", {row.delta:g}" if row.delta else "")
        proved = "" if row.lower_bound is None else f"{row.lower_bound:z.3f}"
        verdict = row.verdict if row.holds else row.verdict.upper()
        terms = "" if row.model == "any" else f"{row.model}, {row.calibration}: "
        law = "" if row.law is None else f"{row.law:.2g}"
        table.add_row(row.mechanism, terms + row.attack, claimed, proved, law, readable(row.samples), verdict)
    screen.print(table)


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
        begin(f"attacking what {named} claims, with up to {samples:,} reports each", "minutes")
        evidence = run_audit(subject.spec, subject.record, samples)
    made = make_review(subject, evidence, said)
    for path in write(made, out):
        screen.print(f"{path}: {path.stat().st_size:,} bytes", soft_wrap=True, markup=False)
    if not made.holds:
        screen.print("not everything holds: see the page")
        raise typer.Exit(1)


def show_key(
    url: Url = URL,
    data: Annotated[
        Path | None,
        typer.Option(help="The server's data folder, that of privateer up, or the key file, on this machine."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the key that a server signs with: applications pin it. A key that is read from the disk is certain."""
    if data is not None:
        key = read_signing_key(_key_file(data), "--data").public_key().public_bytes_raw()
    else:
        with httpx.Client(timeout=_SECONDS) as http:
            key = LogSource(url, http, "--url").key()
    shown = {"key": key.hex(), "fingerprint": fingerprint(key)}
    if as_json:
        print_json(shown)
    else:
        print_table("signing key", shown.items())


def _key_file(data: Path) -> Path:
    """Return where the key is: a file, or in the server's folder, or in that of ``privateer up``."""
    places = (data / _KEY_FILE, data / "server" / _KEY_FILE) if data.is_dir() else (data,)
    for path in places:
        if path.exists():
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
    keys, before = read_keys(server_key, "--server-key"), _read(state)
    if len(keys) > 1:
        raise SpecError("is more than one key", field="--server-key", remedy="name the one that signs now")
    with httpx.Client(timeout=_SECONDS) as http:
        source = LogSource(url, http)
        try:
            after, found = checked(source, next(iter(keys), None), before)
            for other in against:
                compare(source, after, _head(other, http))
        except LogContradiction as contradiction:
            evidence.write_text(json.dumps(contradiction.evidence, indent=1) + "\n")
            shown = printable(str(contradiction))  # a log has names that its server made up
            screen.print(f"{shown}\nThe evidence is in {evidence}.", soft_wrap=True, markup=False)
            raise typer.Exit(1) from None
    state.write_bytes(msgspec.json.format(msgspec.json.encode(after)) + b"\n")
    print_table(
        "the log holds",
        [
            *(("entries", found.size), ("new", found.entries), ("publications read", found.read)),
            *(("not served any more", found.unserved), ("heads compared", len(against)), ("key", after.key)),
        ],
    )


def _read(path: Path) -> AuditorState | None:
    if not path.exists():
        return None
    try:
        state = msgspec.json.decode(path.read_bytes(), type=AuditorState)
        Peaks(Head.open(state.head, bytes.fromhex(state.key)).size, state.peaks)
    except (OSError, ValueError, SignatureInvalid):
        remedy = "name another file: a new one trusts the log as it is"
        raise SpecError(f"{path.name} is not the state of an audit", field="--state", remedy=remedy) from None
    return state


def _head(other: str, http: httpx.Client) -> str:
    """Return the head in a file, or in what another auditor's run keeps; or that of the server at an address."""
    if other.startswith(("http://", "https://")):
        return LogSource(other, http, "--against").shown()
    try:
        found = Path(other).read_text()
    except (OSError, UnicodeDecodeError):
        raise SpecError(f"cannot read {other}", field="--against", remedy="name a file, or an address") from None
    found = _of_an_auditor(found) or found
    if not Head.is_one(found):
        remedy = (
            "give what client.head says, another auditor's audit-log.json, or a copy of the server's page /log/head"
        )
        raise SpecError(f"{other} is not the head of a log", field="--against", remedy=remedy)
    return found


def _of_an_auditor(text: str) -> str | None:
    """Return the last head of another run of this command; None if the text is not what one keeps."""
    try:
        return msgspec.json.decode(text, type=AuditorState).head
    except (msgspec.DecodeError, RecursionError):
        return None
