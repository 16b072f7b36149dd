"""How long uploads take, told so that nobody learns from it when somebody reported."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from privateer_core.serving.timing import BUCKETS, Answered

_ACCEPTED: Final = "2xx"
_BOUNDS: Final = (*map(str, BUCKETS), "+Inf")


class _Times:
    """Uploads by how long they took: how many in each bucket, and their seconds in all."""

    def __init__(self) -> None:
        self.buckets = [0] * len(_BOUNDS)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        self.seconds += seconds

    def take(self, others: "_Times") -> None:
        """Count others, too."""
        self.buckets = [one + other for one, other in zip(self.buckets, others.buckets, strict=True)]
        self.seconds += others.seconds

    def __len__(self) -> int:
        return sum(self.buckets)


class UploadTimes(Collector):
    """A histogram that moves when a batch is delivered, as the count of forwarded reports does.

    Parameters
    ----------
    step
        So many refused uploads are shown at once.
    """

    def __init__(self, step: int) -> None:
        self._step = step
        self._shown: defaultdict[str, _Times] = defaultdict(_Times)
        self._held: defaultdict[str, _Times] = defaultdict(_Times)
        self._refused: defaultdict[str, _Times] = defaultdict(_Times)

    def add(self, experiment: str, answered: Answered) -> None:
        """Note an upload for an experiment."""
        kind = answered.status_class
        if kind == _ACCEPTED:
            self._held[experiment].add(answered.seconds)
            return
        refused = self._refused[kind]
        refused.add(answered.seconds)
        if len(refused) == self._step:
            self._shown[kind].take(self._refused.pop(kind))

    def show(self, experiment: str) -> None:
        """Show the uploads of a batch that is delivered."""
        if held := self._held.pop(experiment, None):
            self._shown[_ACCEPTED].take(held)

    def forget(self, experiment: str) -> None:
        """Show nothing of the uploads of a batch that is dropped."""
        self._held.pop(experiment, None)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """Yield the histogram."""
        text = "From the last byte of an upload to the first of its answer, told with its batch; refused ones in tens"
        family = HistogramMetricFamily("privateer_shuffler_upload_seconds", text, labels=["status"])
        for kind, times in sorted(self._shown.items()):
            totals = [sum(times.buckets[: end + 1]) for end in range(len(_BOUNDS))]
            family.add_metric([kind], list(zip(_BOUNDS, totals, strict=True)), times.seconds)
        yield family
