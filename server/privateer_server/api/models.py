"""What the routes answer, as OpenAPI describes it.

The records of privacy and the results of algorithms are documents of the core, which are described as they are there.
"""

from typing import Any, Final

import msgspec
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from privateer.record import Record
from privateer.result import Estimate
from privateer.wire.publication import Round
from privateer_server.experiment import Experiment, Status
from privateer_server.rounds import RoundFacts
from privateer_server.store import RoundRecord

_REF: Final = "#/components/schemas/{name}"


class View(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Health(View):
    """Whether the process answers, or can count reports."""

    status: str


class PublicKey(View):
    """The public key to which the reports of an open round are sealed (X25519, hex)."""

    experiment: str
    version: int
    public_key: str
    key_id: str


class PublicKeys(View):
    """The keys of all open rounds."""

    keys: list[PublicKey]


class Claim(View):
    """The id of the key of the shuffler that brings an experiment's batches."""

    shuffler: str | None


class Problem(View):
    """Why a request was refused (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    remedy: str | None = None


class Summary(View):
    """Where an experiment stands; ``received`` counts the open round, ``accepted`` all rounds."""

    name: str
    status: Status
    model: str
    algorithm: str
    version: int
    batch: int
    received: int
    accepted: int
    digest: str


class Summaries(View):
    """All experiments."""

    experiments: list[Summary]


class Details(Summary):
    """An experiment with its refusals by reason, the shuffler that claimed it, and its spec."""

    refused: dict[str, int]
    shuffler: str | None
    spec: dict[str, Any]


class PublishedPolicy(View):
    """A publication, for people and other languages."""

    experiment: str
    version: int
    model: str
    batch: int
    sealed_size: int
    messages: int
    least: int
    deadline: int | None
    key_id: str
    digest: str
    policy: dict[str, Any]


class Progress(View):
    """How far a round is."""

    received: int
    batch: int
    deadline: int | None


class State(View):
    """What the learner knew when it made the policy, which private releases alone decide; and how far the round is."""

    experiment: str
    version: int
    status: Status
    round: Progress
    state: dict[str, Any]


class ResultView(View):
    """What the learner found, as the current version publishes it; see `privateer.result.Result`."""

    experiment: str
    version: int
    status: Status
    estimates: list[EstimateView]
    confidence: float
    recommended: str | None
    stopped: bool


class HistoryRow(View):
    """A published round: whom it asked, how reports were randomized, and what the learner counted before it."""

    version: int
    batch: int
    received: int
    digest: str
    cohort: str
    honest: int
    mechanism: dict[str, Any]
    figures: dict[str, float]


class History(View):
    """All published rounds in order."""

    experiment: str
    rounds: list[HistoryRow]
