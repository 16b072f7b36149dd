"""The parties of an experiment: what each of them sees, and how long it keeps that."""

from collections.abc import Iterator
from typing import Final

import msgspec

from privateer_core.privacy.trust import Trust
from privateer_core.spec.spec import Spec

_CURATES = "nothing keeps it from reading records: it sees them, and has to protect them"
_IN_ITS_TURN = "open a report before it is permuted"
_OUT = "single out a device by key, policy or batch size; with false reports it can"
_VOUCHED: Final = " Who runs the issuer, or the backend that vouches for devices, can still make people up."
_TOLD = "the device erases it, as far as its disk lets go of freed blocks"


class Party(msgspec.Struct, frozen=True):
    """Somebody who takes part in an experiment or looks on.

    Attributes
    ----------
    name
        Who it is.
    has, sees
        What it holds, and what it learns of a person by the protocol.
    cannot
        What the protocol keeps it from.
    """

    name: str
    has: str
    sees: str
    cannot: str


class Exposure(msgspec.Struct, frozen=True):
    """Something that the promise does not cover.

    Attributes
    ----------
    what
        In two or three words.
    words
        Who learns it, and what helps.
    """

    what: str
    words: str


def parties(row: Trust, with_tokens: bool = False) -> tuple[Party, ...]:
    """Return who sees what under a trust model, and where reports come with upload tokens."""
    return tuple(_parties(row, with_tokens))


def _parties(row: Trust, with_tokens: bool) -> Iterator[Party]:
    keeps = "send a report that its ledger has not paid for, or randomize one twice"
    yield Party("the device", "context, arm, reward, its ledger", "the public policy", keeps)
    if row.shuffled:
        smaller = "open a report, or use a smaller batch than the devices were promised"
        yield Party("the shuffler", "sealed reports of the open round", "sizes, and who sends when", smaller)
    holds = "the private keys of open rounds, sums, the learner's state"
    yield Party("the server", holds, row.sees, _CURATES if row.curated else _kept_from(row))
    changes = (
        "see anything that is not published; an export has the learner's state, which follows from what is released"
    )
    if with_tokens:
        asks = "who asks for an experiment's tokens, and when; blinded tokens"
        ties = "tell which token it signed for whom, or where it is spent"
        yield Party("the issuer of upload tokens", "its private keys, hashes of who asked", asks, ties)
    yield Party("an operator with an admin token", "pause, stop, change, delete, export", "what is published", changes)
    seen = "that a device fetched a policy, once or more, and sent one report of fixed size"
    yield Party("a reader of the network", "nothing", seen, "infer values from sizes")
    public = "the policy, the result, the numbers of reports, the privacy record"
    yield Party(
        "everybody",
        "nothing",
        public,
        "learn more of a person than the promise allows" if row.promises else "nothing is promised",
    )


def _kept_from(row: Trust) -> str:
    return f"{_IN_ITS_TURN}, or {_OUT}" if row.shuffled else f"see a report that is not randomized, or {_OUT}"


def exposures(spec: Spec, with_tokens: bool = False) -> tuple[Exposure, ...]:
    """Return what the promise of an experiment does not cover."""
    return tuple(_exposures(spec, spec.privacy.trust, with_tokens))


def _exposures(spec: Spec, row: Trust, with_tokens: bool) -> Iterator[Exposure]:
    taker = "the shuffler" if row.shuffled else "the server"
    proxy = "Use a proxy where participation itself is sensitive"
    yield Exposure("participation", f"The server sees who fetches the policy, and {taker} sees who reports. {proxy}.")
    if spec.experiment.conversion_window:
        yield Exposure("the time of a report", "It tells when the person chose, and nothing of the outcome.")
    else:
        remedy = "Set experiment.conversion_window where outcomes take longer for some people than for others"
        yield Exposure(
            "the time of a report", f"The application decides it, and the promise does not cover it. {remedy}."
        )
    yield Exposure("the arm", _of_the_arm(spec, row))
    yield from _of_tokens(taker) if with_tokens else ()
    if row.batched:
        share = f"{spec.privacy.honest_fraction:.12g}"
        words = f"The promise counts on a share of {share} honest reports in every batch, which no device can check."
        yield Exposure("false people", words + (_VOUCHED if with_tokens else ""))
    elif with_tokens:
        yield Exposure("false people", f"Strangers have no tokens, and send no reports.{_VOUCHED}")
    else:
        yield Exposure("false people", "Devices are not authenticated: many false reports bend the policy.")
    if row.curated:
        yield Exposure(
            "the server itself", "It sees records. A thief of an open round finds its sums, and their key beside."
        )
    lost = (
        "A person with several devices, or who deletes the ledger, may report more than once. Use one ledger a person"
    )
    yield Exposure("several devices", f"{lost}.")


def _of_tokens(taker: str) -> Iterator[Exposure]:
    words = (
        f"The issuer and {taker} together know when tokens were issued and when they were spent, and each sees "
        "addresses. Where few people come, the times tell who is who: have devices get tokens ahead."
    )
    yield Exposure("the times of tokens", words)


def _of_the_arm(spec: Spec, row: Trust) -> str:
    itself = "The arm by itself says something of the person, since a learned policy plays different arms for others."
    if not row.promises:
        return itself
    if not row.hides_arms:
        return f"{itself} Whoever sees arm and report together learns more: a claim of its own says how much."
    if spec.privacy.arms == "hidden":
        return f"{itself} The promise counts on nobody who gets reports or reads the policy seeing the arm."
    if spec.privacy.as_alone:
        return f"{itself} Whoever sees arm and report together learns more: a claim of its own says how much."
    return f"{itself} The promise holds against somebody who sees the arm as well."


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
    tokens = _tokens_kept(spec) if with_tokens else ()
    return (*_of_devices(spec), *_of_the_shuffler(spec), *_of_the_server(spec), *tokens, *_of_people())


def _tokens_kept(spec: Spec) -> Iterator[Kept]:
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
