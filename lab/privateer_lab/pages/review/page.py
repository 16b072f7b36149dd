"""The review as a page for people, and the files of a pack."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from privateer_core.privacy.trust import trust_of
from privateer_lab.cli.output import open_folder
from privateer_lab.figures import listed, percent, readable
from privateer_lab.pages.review.document import Review
from privateer_lab.pages.review.promises import promised
from privateer_lab.pages.review.registry import as_yaml
from privateer_lab.pages.review.subject import plain
from privateer_lab.pages.templates import exact, page

_CONTENTS: Final = (
    ("sees", "Who sees what"),
    ("promise", "The promise, and the risk that is left"),
    ("certificate", "The certificate"),
    ("assumptions", "Assumptions"),
    ("evidence", "Evidence of the audit"),
    ("retention", "What is stored, and for how long"),
    ("points", "NIST SP 800-226"),
    ("registry", "DP deployments registry"),
    ("unknown", "What is unknown"),
    ("asks", "What the experiment asks"),
)


def html(review: Review) -> str:
    """Return the page."""
    return page(
        "review.html",
        review=review,
        trust=trust_of(review.asked.model),
        contents=_CONTENTS,
        summary=_summary(review),
        parties=_rows(review.parties),
        verdicts=[
            (
                f"{one.against}{f' ({one.cohort})' if one.cohort else ''}",
                exact(one.epsilon),
                exact(one.delta),
                exact(float(f"{one.found:.3g}")),
                readable(one.exact),
                "yes" if one.holds else "NO",
                one.proof,
            )
            for one in review.claims
        ],
        attacks=[
            (
                one.attack,
                one.mechanism,
                "" if one.epsilon is None else exact(one.epsilon),
                "" if one.delta is None else exact(one.delta),
                "" if one.lower_bound is None else f"{one.lower_bound:z.3f}",
                one.samples,
                one.verdict,
            )
            for one in (review.evidence.attacks if review.evidence else ())
        ],
        kept=[
            (one.where, one.what, one.until, one.how, "software" if one.decided else "people") for one in review.kept
        ],
        guesses=[
            [(one.candidates, percent(one.blind), percent(one.at_most)) for one in claim.guesses]
            for claim in review.claims
        ],
        crowd=_crowd(review),
        registry=None if review.registry is None else as_yaml(review.registry),
        unknown=_rows(review.unknown),
        said=[
            (key.replace("_", " "), value if isinstance(value, str) else ", ".join(value))
            for key, value in msgspec.structs.asdict(review.facts).items()
            if value
        ],
        chosen=listed(review.asked.options),
        features=listed(review.asked.features) or "no features",
    )


def write(review: Review, folder: Path) -> list[Path]:
    """Write a pack, and return its files."""
    open_folder(folder, "--out")
    texts = {
        "review.html": html(review),
        "review.json": _json(plain(review)),
        "record.json": _json(plain(review.record)),
    }
    if review.registry is not None:
        texts["registry.yaml"] = as_yaml(review.registry)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _summary(review: Review) -> str:
    row, first = trust_of(review.asked.model), review.claims[0]
    if first.epsilon is None:
        return f"Nothing is promised to a person: the server sees {row.sees}."
    state = "All claims were recomputed and hold" if review.holds else "NOT EVERYTHING HOLDS: see the sections below"
    return f"{promised({one.cohort: one for one in reversed(review.claims)})}. {state}."


def _rows(structs: Iterable[msgspec.Struct]) -> list[tuple[Any, ...]]:
    return [msgspec.structs.astuple(one) for one in structs]


def _crowd(review: Review) -> str:
    """Say on how many honest people the promise counts, where it does: in the smallest round."""
    rows = [row for row in (*review.record.rounds, review.record.planned) if row is not None and row.honest]
    if not rows:
        return ""
    least = min(rows, key=lambda row: row.honest)
    return f"{least.honest:,} honest reports in a batch of {least.batch:,}, the smallest"
