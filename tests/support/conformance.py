"""The public conformance data of the languages, as tests read it: ``make conformance`` fetches it."""

import pytest

from tests.support.places import ROOT

FETCHED = ROOT / ".conformance"
BESIDE = ROOT.parent / "shared" / "conformance"
CONFORMANCE = BESIDE if BESIDE.is_dir() and not FETCHED.is_dir() else FETCHED
CORPUS = CONFORMANCE / "mwl"
FLOW_SCHEMAS = CONFORMANCE / "mwl-schemas"
VECTORS = CONFORMANCE / "playbook" / "vectors"
WORKFLOW_SCHEMA = CONFORMANCE / "sweny-schemas" / "workflow.json"

WITH_DATA = pytest.mark.skipif(
    not CONFORMANCE.is_dir(), reason="no public conformance data: `make conformance` fetches it"
)
