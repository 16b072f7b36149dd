"""Policies in a notebook: what a server published or exported, as a table, and what it decides for whom."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike, environ
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms import parse_spec
from privateer_core.answer.policy_view import BinShares, GroupShares
from privateer_core.errors import PrivateerError, SpecError
from privateer_core.policies.decisions import Plays, Points
from privateer_core.spec.spec import Spec
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.publication import decode_publication
from privateer_lab.answer_tables import rows_of
from privateer_lab.answer_words import people_in
from privateer_lab.cli.documents import read_document
from privateer_lab.notebook.data_frames import Array, columns_of, contexts_of
from privateer_lab.notebook.tabular import ResultTable, Tabular, table_of
from privateer_lab.services.rest import fetch
from privateer_lab.simulation.devices import scaled
from privateer_server.rounds.open_round import read_decider

_SERVER: Final = "http://127.0.0.1:8000"
_DRAWS: Final = 64
"""Coins for each person where a policy does not say its shares."""


@runtime_checkable
class _Located(Protocol):
    """A policy that says where a context is, and which shares the arms have there."""

    shares: NDArray[np.float64]

    def locate(self, contexts: Array) -> NDArray[np.int64]: ...


@dataclass(frozen=True, repr=False)
class LoadedPolicy(Tabular):
    """A policy with its spec.

    Attributes
    ----------
    spec
        The experiment's.
    decoded
        What devices decide by.
    """

    spec: Spec
    decoded: Any = field(repr=False)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self.spec.options

    @cached_property
    def table(self) -> ResultTable:
        """A row for each bin or group of people with the shares of arms there; of other policies what they have."""
        shows, title = self.decoded.view(self.spec).shows, f"policy of {self.spec.name}"
        if isinstance(shows, BinShares):
            people = [(people_in(one.where), one.arms) for one in shows.bins]
        elif isinstance(shows, GroupShares):
            people = [(one.name, one.arms) for one in shows.groups]
        else:
            return table_of(title, (row for one in rows_of(shows) for row in one.rows))
        return table_of(title, ({"people": name, **_shares(arms, self.arms)} for name, arms in people))

    def shares(self, contexts: Any) -> Array:
        """Return the probability of every arm, (n, arms), for people with these contexts.

        Parameters
        ----------
        contexts
            A data frame or mapping with a column for each feature of the spec.

        Raises
        ------
        InputError
            If a column is missing or has a value that the feature cannot have.
        """
        return self.at(scaled(contexts_of(columns_of(contexts), self.spec), self.spec))

    def at(self, columns: Array, seed: int = 0) -> Array:
        """Return the probability of every arm, (n, arms), for encoded contexts, (n, columns).

        Policies of bins tell it. Others are asked with 64 coins a person, drawn from the seed: their answers have the
        right mean, so that what is estimated with them has, too.

        Raises
        ------
        SpecError
            If the policy does not choose an arm for each person.
        """
        policy = self.decoded
        if isinstance(policy, _Located):
            return np.asarray(policy.shares[policy.locate(columns)])
        rng, found = np.random.default_rng(seed), np.zeros((len(columns), len(self.arms)))
        for _ in range(_DRAWS):
            decided = policy.decide(columns, rng.integers(0, 2**32, len(columns), dtype=np.uint32))
            if isinstance(decided, Plays | Points):
                detail = "chooses something else than an arm for each person"
                raise SpecError(detail, field="policy", remedy="use the policy of an experiment that chooses arms")
            found[np.arange(len(columns)), decided.arms] += 1 / _DRAWS
        return found


def policy(source: "str | PathLike[str] | Mapping[str, Any]", version: int | None = None) -> LoadedPolicy:
    """Return a policy that a server published, or that ``privateer export`` wrote.

    Parameters
    ----------
    source
        The experiment's name on the server of ``PRIVATEER_URL`` (by default this machine's), its address, such as
        ``http://127.0.0.1:8000/experiments/shop``; or the path, or the tables, of an exported experiment.
    version
        The policy of this round; by default the newest.

    Raises
    ------
    PrivateerError
        If there is no answer, no such experiment, or the document is none.
    """
    if isinstance(source, Mapping):
        return _exported(source)
    if isinstance(source, PathLike) or str(source).endswith(".json"):
        return _exported(read_document(Path(source)))
    if not isinstance(source, str):
        remedy = "give the name of an experiment, its address, or an exported file"
        raise SpecError("is no policy", field="policy", remedy=remedy)
    page = address(source) + "/policy" + (f"/{version}" if version else "")
    return _published(fetch(page, field="url", headers={"Accept": MEDIA_TYPE}))


def address(experiment: str) -> str:
    """Return the page of an experiment: what is given, or a name on the server of ``PRIVATEER_URL``."""
    if "://" in experiment:
        return experiment.rstrip("/")
    return f"{environ.get('PRIVATEER_URL', _SERVER).rstrip('/')}/experiments/{experiment}"


def _exported(document: Any) -> LoadedPolicy:
    try:
        publication = base64.b64decode(document["publication"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        detail = "is not an exported experiment"
        raise SpecError(detail, field="policy", remedy="give a file that privateer export wrote") from None
    return _published(publication)


def _published(publication: bytes) -> LoadedPolicy:
    try:
        decoded = decode_publication(publication)
        spec = parse_spec(msgspec.json.decode(decoded.spec))
        read: Any = read_decider(spec, decoded)
        read.check(spec)
    except (PrivateerError, msgspec.DecodeError):
        raise SpecError("is not a published policy", field="policy", remedy="fetch or export it again") from None
    return LoadedPolicy(spec, read)


def _shares(arms: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    return {name: arms.get(name, 0.0) for name in names}
