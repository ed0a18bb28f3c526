"""A comparison's page in a real Chromium."""

import pytest

from flows.report.compare import compare, write
from tests.flows.report.test_compare import A, B, two_runs
from tests.flows.report.test_in_browser import whole_and_readable

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", params=[("binary", 4), ("regression", 2)], ids=lambda case: case[0])
def comparison(request, tmp_path_factory):
    """The page of a comparison, and how many figures it has."""
    task, figures = request.param
    return write(compare(two_runs(tmp_path_factory.mktemp("compared"), task), A, B)), figures


@pytest.mark.parametrize(("scheme", "axe_at"), [("light", 360), ("dark", 1440)])
def test_a_comparison_is_whole_and_can_be_read(visit, accessible, comparison, scheme, axe_at):
    page, figures = comparison
    whole_and_readable(visit(page, scheme=scheme), accessible, axe_at, least=figures)
