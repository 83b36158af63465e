"""Makes requests of the operations of an OpenAPI document, and checks the answers: for the Python of `make validators`.

On stdin it reads a JSON object: ``url`` of the server, the ``document``, the labels of the ``operations`` to request,
whether the requests are ``allowed`` by the document, how many to make of each, the labels of operations whose answers
have no end (``endless``), and the ``media_type`` of these. It has an exit code other than 0 if an answer is not as the
document says.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import json
import sys
from typing import Any

import requests
import schemathesis.openapi as openapi
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
PATIENCE_S = 30.0


def request_all(asked: dict[str, Any]) -> None:
    """Make requests of all operations."""
    mode = GenerationMode.POSITIVE if asked["allowed"] else GenerationMode.NEGATIVE
    found = {
        one.label: one for one in (each.ok() for each in openapi.from_dict(asked["document"]).get_all_operations())
    }
    for label in asked["operations"]:
        _request(found[label].as_strategy(generation_mode=mode), label in asked["endless"], asked)


def _request(cases: Any, is_endless: bool, asked: dict[str, Any]) -> None:
    @settings(
        max_examples=asked["requests"],
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(cases)
    def make(case: Any) -> None:
        if is_endless:
            _begin(case.as_transport_kwargs(base_url=asked["url"]), asked["media_type"])
        else:
            case.call_and_validate(base_url=asked["url"], checks=CHECKS)

    make()


def _begin(request: dict[str, Any], media_type: str) -> None:
    """Begin to read an answer that has no end."""
    with requests.Session() as session:
        session.trust_env = False
        names = ("method", "url", "params", "headers", "cookies")
        answer = session.request(**{name: request[name] for name in names}, timeout=PATIENCE_S, stream=True)
        assert answer.status_code < 500
        assert answer.status_code != 200 or answer.headers["content-type"] == media_type


if __name__ == "__main__":
    request_all(json.load(sys.stdin))
