"""What the server knows of a trial."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privateer_server.algorithms.trial.evidence import Evidence, Sums
from privateer_server.algorithms.trial.gain import Held
from privateer_server.algorithms.trial.line import Line
from privateer_server.algorithms.trial.ratio import Ratio
from privateer_server.algorithms.trial.shares import Shares, told_shares

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TrialState:
    """Functions of releases, and of public coins.

    Attributes
    ----------
    seed
        What coins mean, in all rounds: those of a late report chose as they would now.
    heard
        People whose reports opened so far.
    evidence
        What releases add up to.
    everybody
        What is told of everybody, about the reward and each guardrail; empty where nobody is asked about everybody.
    members
        Sums over people who were asked for their segment alone; None where nobody is.
    shares
        Shape (rows, arms): shares of the arms in the next round. Rows are segments, and everybody where that is asked
        about.
    dropped
        Shape (rows, arms): arms that elimination has dropped.
    ratio
        People of each arm beside what their shares say.
    line
        What strict intervals are made of; None if the spec has others.
    guardrails
        The same evidence about each guardrail.
    held
        What choosing by segment is held against; None until it is chosen.
    path, average_path
        Shape (looks, segments, treatments, 3) and (looks, treatments, 3): estimate and interval at every look; nan
        where nothing is said.
    stopped
        Which rule ended the trial; empty while none has.
    """

    seed: int
    heard: int
    evidence: Evidence
    everybody: tuple[Evidence, ...]
    members: Sums | None
    shares: Array
    dropped: NDArray[np.bool_]
    ratio: Ratio
    line: Line | None
    guardrails: tuple[Evidence, ...]
    held: Held | None
    path: Array
    average_path: Array
    stopped: str = ""

    @property
    def asked(self) -> Shares | None:
        """Segments' shares of the people as they were asked; None where nobody is."""
        return None if self.members is None else told_shares(self.members)
