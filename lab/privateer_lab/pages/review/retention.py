"""What is stored where, and for how long (docs/operations.md, docs/threat-model.md)."""

from collections.abc import Iterator

import msgspec

from privateer_core.spec.spec import Spec

_TOLD = "the device erases it, as far as its disk lets go of freed blocks"


class Kept(msgspec.Struct, frozen=True):
    """Something that is stored.

    Attributes
    ----------
    where
        The party and the place.
    what
        What is stored.
    until
        When it is gone.
    how
        How it goes, or what protects it.
    decided
        Whether the software decides until when; False: people have to.
    """

    where: str
    what: str
    until: str
    how: str
    decided: bool


def retention(spec: Spec, with_tokens: bool = False) -> tuple[Kept, ...]:
    """Return what an experiment stores, and what comes with upload tokens."""
    tokens = _of_tokens(spec) if with_tokens else ()
    return (*_of_devices(spec), *_of_the_shuffler(spec), *_of_the_server(spec), *tokens, *_of_people())


def _of_tokens(spec: Spec) -> Iterator[Kept]:
    taker = "shuffler" if spec.privacy.trust.shuffled else "server"
    expired = "a day after the issuer's key has expired"
    yield Kept("device: upload tokens", "tokens that are not spent", "the report, or the key expires", _TOLD, True)
    yield Kept(f"{taker}: spent tokens", "random numbers that nobody has seen before", expired, "deleted", True)
    whose = "keyed hashes of who has had tokens, without a time"
    until = "its operator takes the experiment off the list, and its last key is gone"
    yield Kept("issuer: shares", whose, until, "the key of the hashes is beside", False)
    yield Kept("issuer: keys", "private keys that sign tokens", "they expire", "overwritten", True)


def _of_devices(spec: Spec) -> Iterator[Kept]:
    window = spec.experiment.conversion_window
    waits = f"the report, {window:g} seconds after the choice" if window else "the report, or the end of the session"
    yield Kept("device: choice", "context, arm and outcome, encrypted where it is kept", waits, _TOLD, True)
    yield Kept("device: report", "the sealed report", "an endpoint takes or refuses it", _TOLD, True)
    day = "that the person took part, in which experiment, and on which day"
    yield Kept("device: ledger", day, "the application deletes the ledger", "it never leaves the device", False)


def _of_the_shuffler(spec: Spec) -> Iterator[Kept]:
    if not spec.privacy.trust.shuffled:
        return
    gone = "overwritten and deleted"
    yield Kept(
        "shuffler: reports",
        "sealed reports that it cannot open",
        "the batch is delivered, or the round over",
        gone,
        True,
    )
    yield Kept(
        "shuffler: fingerprints", "16 bytes of each delivered message", "the policy's version is over", gone, True
    )
    yield Kept(
        "shuffler: key", "the key that signs batches", "the operator deletes the folder", "its user's alone", False
    )


def _of_the_server(spec: Spec) -> Iterator[Kept]:
    gone = "overwritten and deleted"
    yield Kept("server: keys", "the private key of each open round", "the round closes", gone, True)
    encrypted = "encrypted with the round's key"
    what = "exact sums of records" if spec.privacy.trust.curated else "sums of randomized reports"
    yield Kept("server: open round", f"{what}, and the random ids of reports", "the round closes", encrypted, True)
    what = "spec, policies, the learner's state, the privacy record, the log of changes"
    yield Kept("server: experiment", what, "privateer delete NAME", "the name and the log of changes stay", False)
    yield Kept("server: journal", "the last publication", "privateer delete NAME", "it has no report and no sum", False)
    yield Kept(
        "server: metrics, log lines",
        "counts by experiment and reason",
        "the operator's systems drop them",
        "no address, context, arm or reward",
        False,
    )


def _of_people() -> Iterator[Kept]:
    what = "policies and the learner's state; no keys, no sums, no ids of reports"
    yield Kept("backups", what, "who made them deletes them", "a deletion does not reach them", False)
    yield Kept(
        "exports and reports",
        "what is published, and the learner's state",
        "who made them deletes them",
        "functions of what was released",
        False,
    )
    yield Kept(
        "proxies in front of the services",
        "addresses and times, if they log them",
        "their operator decides",
        "the services themselves have no access log",
        False,
    )
