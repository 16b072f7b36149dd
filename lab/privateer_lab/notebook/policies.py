"""Policies in a notebook: loaded from a server or a file, evaluated on contexts, and drawn as a map."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike, environ
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from privateer_core.algorithms import parse_spec
from privateer_core.answer.policy_view import BinShares, GroupShares
from privateer_core.errors import PrivateerError, SpecError
from privateer_core.policies.gain_policy import check_policy
from privateer_core.policies.policy import Plays, Points
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import MEDIA_TYPE, decode_publication
from privateer_lab.cli.input_files import read_document
from privateer_lab.environments.files import read_contexts
from privateer_lab.notebook.tabular import ResultTable, Tabular, build_table
from privateer_lab.render.tables import part_tables
from privateer_lab.render.words import describe_bin
from privateer_lab.services.rest import fetch_bytes
from privateer_lab.simulation.scores import encode_contexts
from privateer_lab.tables.data_table import DataTable
from privateer_server.rounds.open_round import read_decider

Array: TypeAlias = NDArray[np.float64]
_DEFAULT_SERVER_URL: Final = "http://127.0.0.1:8000"
_N_COINS: Final = 64
"""Coins drawn for each participant where a policy has no closed form of its probabilities."""


@runtime_checkable
class _LocatingPolicy(Protocol):
    """A policy that maps contexts to bins with known shares of the arms."""

    shares: NDArray[np.float64]

    def locate(self, contexts: Array) -> NDArray[np.int64]: ...


@dataclass(frozen=True, repr=False)
class LoadedPolicy(Tabular):
    """A policy with its spec.

    Attributes
    ----------
    spec
        The experiment's spec.
    decoded
        The policy as devices decode it.
    """

    spec: Spec
    decoded: Any = field(repr=False)

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms."""
        return self.spec.options

    @cached_property
    def table(self) -> ResultTable:
        """A row with the shares of the arms for each bin or group of participants; or else the policy's own tables."""
        shows, title = self.decoded.view(self.spec).shows, f"policy of {self.spec.name}"
        if isinstance(shows, BinShares):
            people = [(describe_bin(bin_.where), bin_.arms) for bin_ in shows.bins]
        elif isinstance(shows, GroupShares):
            people = [(group.name, group.arms) for group in shows.groups]
        else:
            return build_table(title, (row for titled in part_tables(shows) for row in titled.rows))
        rows = ({"people": name, **{arm: shares.get(arm, 0.0) for arm in self.arms}} for name, shares in people)
        return build_table(title, rows)

    def shares(self, contexts: Any) -> Array:
        """Return the probability of every arm, (n, arms), for participants with these contexts.

        Parameters
        ----------
        contexts
            A data frame or mapping with a column for each feature of the spec.

        Raises
        ------
        SpecError
            If a column is missing or has a value that the feature cannot have.
        """
        return self.shares_at(encode_contexts(read_contexts(DataTable(contexts), self.spec), self.spec))

    def shares_at(self, columns: Array, seed: int = 0) -> Array:
        """Return the probability of every arm, (n, arms), for encoded contexts, (n, columns).

        Policies of bins store it. Other policies decide with 64 coins a participant, drawn from the seed: the shares
        of their decisions are unbiased, and so are estimates that use them.

        Raises
        ------
        SpecError
            If the policy does not choose an arm for each person.
        """
        policy = self.decoded
        if isinstance(policy, _LocatingPolicy):
            return np.asarray(policy.shares[policy.locate(columns)])
        rng, probabilities = np.random.default_rng(seed), np.zeros((len(columns), len(self.arms)))
        for _ in range(_N_COINS):
            decision = policy.decide(columns, rng.integers(0, 2**32, len(columns), dtype=np.uint32))
            if isinstance(decision, Plays | Points):
                detail = "chooses something else than an arm for each person"
                raise SpecError(detail, field="policy", remedy="use the policy of an experiment that chooses arms")
            probabilities[np.arange(len(columns)), decision.arms] += 1 / _N_COINS
        return probabilities


def policy(source: "str | PathLike[str] | Mapping[str, Any]", version: int | None = None) -> LoadedPolicy:
    """Load a policy that a server published, or that ``privateer export`` wrote.

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
        If there is no answer, no such experiment, or the document is no policy.
    """
    if isinstance(source, Mapping):
        return _load_exported(source)
    if isinstance(source, PathLike) or str(source).endswith(".json"):
        return _load_exported(read_document(Path(source)))
    if not isinstance(source, str):
        remedy = "give the name of an experiment, its address, or an exported file"
        raise SpecError("is no policy", field="policy", remedy=remedy)
    page = experiment_url(source) + "/policy" + (f"/{version}" if version else "")
    return _load_publication(fetch_bytes(page, field="url", headers={"Accept": MEDIA_TYPE}))


def experiment_url(experiment: str) -> str:
    """Return the URL of an experiment, given as a URL or as a name on the server of ``PRIVATEER_URL``."""
    if "://" in experiment:
        return experiment.rstrip("/")
    return f"{environ.get('PRIVATEER_URL', _DEFAULT_SERVER_URL).rstrip('/')}/experiments/{experiment}"


def _load_exported(document: Any) -> LoadedPolicy:
    """Load the policy of an exported experiment; refuse other documents."""
    try:
        publication = base64.b64decode(document["publication"], validate=True)
    except (KeyError, TypeError, ValueError, binascii.Error):
        detail = "is not an exported experiment"
        raise SpecError(detail, field="policy", remedy="give a file that privateer export wrote") from None
    return _load_publication(publication)


def _load_publication(publication: bytes) -> LoadedPolicy:
    """Load and check the policy of a publication; refuse damaged ones."""
    try:
        decoded = decode_publication(publication)
        spec = parse_spec(msgspec.json.decode(decoded.spec))
        decider: Any = read_decider(spec, decoded)
        check_policy(decider, spec)
    except (PrivateerError, msgspec.DecodeError):
        raise SpecError("is not a published policy", field="policy", remedy="fetch or export it again") from None
    return LoadedPolicy(spec, decider)
