"""What is said of a server with another version of Prefect."""

import prefect
import pytest
from packaging.version import Version

from flows.orchestration.deploying.connection import version_problem

OURS = Version(prefect.__version__)


@pytest.mark.parametrize(
    ("theirs", "fix"),
    [
        (f"{OURS.major}.{OURS.minor}.{OURS.micro}", None),
        (f"{OURS.major}.{OURS.minor + 1}.0", None),
        (f"{OURS.major}.{OURS.minor - 1}.9", f"update Prefect on the server to {OURS}"),
        (f"{OURS.major - 1}.99.0", f"update Prefect on the server to {OURS}"),
        (f"{OURS.major + 1}.0.0", "update Headway, and Prefect with it"),
    ],
)
def test_a_server_is_to_be_as_new_as_its_clients_and_of_their_major_version(theirs, fix):
    problem = version_problem(theirs, "http://prefect.example/api")
    assert (problem and problem.fix) == fix
    assert problem is None or f"the server has Prefect {theirs}" in str(problem)
