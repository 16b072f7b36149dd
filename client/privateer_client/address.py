"""Where an experiment is: its policy, and the endpoint of its reports."""

from typing import NamedTuple
from urllib.parse import quote

from privateer_core.errors import TermsRefused
from privateer_core.trust import Trust


class Address(NamedTuple):
    """An experiment at a server, and the shuffler that the application trusts."""

    server: str
    name: str
    shuffler: str | None = None

    @property
    def identity(self) -> str:
        """The experiment's name in the ledger."""
        return f"{self.server}/{self.name}"

    @property
    def policy(self) -> str:
        """URL of the policy."""
        return f"{self.server}/experiments/{quote(self.name, safe='')}/policy"

    @property
    def endpoints(self) -> list[str]:
        """Where reports may go."""
        return [self._server_endpoint] + ([self._shuffled(self.shuffler)] if self.shuffler else [])

    def base_of(self, endpoint: str) -> str:
        """Return the service that an endpoint belongs to."""
        is_shuffled = self.shuffler is not None and endpoint == self._shuffled(self.shuffler)
        return self.shuffler if is_shuffled and self.shuffler else self.server

    def endpoint(self, trust: Trust) -> str:
        """Return where reports under a trust model go.

        Raises
        ------
        TermsRefused
            If they need a shuffler, and the application trusts none.
        """
        if not trust.shuffled:
            return self._server_endpoint
        if self.shuffler is None:
            raise TermsRefused(
                "the experiment needs a shuffler that does not collude with its server",
                field="shuffler",
                remedy="name the one your users trust: Client(url, shuffler='https://...')",
            )
        return self._shuffled(self.shuffler)

    @property
    def _server_endpoint(self) -> str:
        return f"{self.server}/reports"

    def _shuffled(self, shuffler: str) -> str:
        return f"{shuffler}/experiments/{self.name}/reports"
