"""Calls of generated clients, which must type-check; run with three addresses and a token."""

import sys
from io import BytesIO

from server_client import AuthenticatedClient, Client
from server_client.api.changes import pause, resume
from server_client.api.experiments import (
    answer,
    create_experiment,
    list_experiments,
    policy_of_version,
    show_experiment,
)
from server_client.api.operations import health
from server_client.api.reports import reports
from server_client.models.changed import Changed
from server_client.models.create_experiment_json_body import CreateExperimentJsonBody
from server_client.models.list_experiments_response_list_experiments import ListExperimentsResponseListExperiments
from server_client.models.problem_malformed_report import ProblemMalformedReport
from server_client.models.problem_not_found import ProblemNotFound
from server_client.models.problem_spec_invalid import ProblemSpecInvalid
from server_client.models.problem_unauthorized import ProblemUnauthorized
from server_client.models.published_answer import PublishedAnswer
from server_client.models.published_policy import PublishedPolicy
from server_client.types import File
from shuffler_client import Client as ShufflerClient
from shuffler_client.api.default import experiment, limits
from shuffler_client.models.experiment_status import ExperimentStatus
from shuffler_client.models.shuffler_limits import ShufflerLimits

server, shuffler, admin, token = sys.argv[1:]
public, operator, stranger = Client(server), AuthenticatedClient(admin, token), AuthenticatedClient(admin, "wrong")

assert health.sync_detailed(client=public).status_code == 200
experiment_list = list_experiments.sync(client=public)
assert isinstance(experiment_list, ListExperimentsResponseListExperiments)
assert "peaks" in [summary.name for summary in experiment_list.additional_properties["experiments"]]
policy = policy_of_version.sync("peaks", 1, client=public)
assert isinstance(policy, PublishedPolicy)
assert policy.version == 1
published = answer.sync("peaks", client=public)
assert isinstance(published, PublishedAnswer)
assert published.experiment == "peaks"
missing = show_experiment.sync("nobody", client=public)
assert isinstance(missing, ProblemNotFound)
assert missing.remedy
refused = reports.sync(client=public, body=File(BytesIO(b"no envelope")))
assert isinstance(refused, ProblemMalformedReport)
assert isinstance(pause.sync("peaks", client=stranger), ProblemUnauthorized)
for change in (pause.sync("peaks", client=operator), resume.sync("peaks", client=operator)):
    assert isinstance(change, Changed)
    assert change.changed
wrong = create_experiment.sync(
    client=operator, body=CreateExperimentJsonBody.from_dict({"experiment": {}, "privacy": {}, "algorithm": {}})
)
assert isinstance(wrong, ProblemSpecInvalid)
assert wrong.field
shuffler_client = ShufflerClient(shuffler)
status = experiment.sync("peaks", client=shuffler_client)
assert isinstance(status, ExperimentStatus)
assert status.open_
assert isinstance(limits.sync(client=shuffler_client), ShufflerLimits)
print("called")
