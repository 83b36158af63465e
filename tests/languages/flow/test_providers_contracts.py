"""The contracts of shipped providers: their form, their implementations, and how the CLI shows them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.providers import http, nats, process
from callboard.languages.flow.admit import find_variables
from callboard.languages.flow.calls import NATIVE
from callboard.languages.flow.provider_document import document_of, find_provider_problems
from callboard.languages.flow.shipped_providers import CONTRACTS, FAILURES, OURS
from callboard.languages.provider_contracts import contract_of
from callboard.surfaces.cli import exits
from tests.support.flow_providers import ours
from tests.support.places import ROOT
from tests.support.workdir import Workdir

SOURCES = {
    "http": ["actors/providers/http.py", "actors/providers/http_request.py"],
    "nats": ["actors/providers/nats.py"],
    "process": ["actors/providers/process.py"],
    "model": ["languages/flow/natives/sessions.py"],
    "tool": ["languages/flow/natives/sessions.py", "languages/flow/approvals.py"],
    "definition": ["languages/flow/natives/waits.py"],
    "human": ["languages/flow/natives/waits.py"],
    "signal": ["languages/flow/natives/waits.py"],
}
"""The modules that create the failures of each provider."""


@pytest.mark.parametrize("uri", list(CONTRACTS))
def test_a_contract_is_a_document_of_the_specification(uri: str) -> None:
    document = document_of(CONTRACTS[uri])
    assert find_provider_problems(document, reserved=()) == []
    assert contract_of(document) == CONTRACTS[uri]
    assert json.loads(json.dumps(document)) == document


def test_every_failure_has_a_description() -> None:
    closed = {code for contract in CONTRACTS.values() for code in contract.closed}
    assert set(FAILURES) == closed
    assert all(when.endswith(".") for when in FAILURES.values())


def test_code_prefixes_are_unique() -> None:
    prefixes = [contract.code_prefix for contract in CONTRACTS.values()]
    assert len(prefixes) == len(set(prefixes))


@pytest.mark.parametrize("name", list(SOURCES))
def test_the_implementation_uses_exactly_the_codes_of_the_contract(name: str) -> None:
    source = "".join((ROOT / path).read_text(encoding="utf-8") for path in SOURCES[name])
    words = set(re.findall(r"\b([A-Z][A-Za-z]+)\b", source))
    declared = {code.rpartition(".")[2] for code in CONTRACTS[ours(name)].closed}
    assert declared - words == set()
    made = set(re.findall(r'\{PREFIX\}\.([A-Z]\w+)"', source)) | set(re.findall(r'\.failed\(\s*"(\w+)"', source))
    assert made <= declared


def test_every_shipped_provider_has_an_implementation() -> None:
    assert {http.HTTP, nats.NATS, process.PROCESS} | set(NATIVE) == {
        *(one.contract.uri for one in OURS),
        "mwl:provider.call/mwl/mock/v1",
    }


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (
            {"a": [{"type": "mcp", "name": "x", "env": {"T": "TOKEN"}, "headers": {"A": "${ONE} ${TWO}"}}]},
            ["TOKEN", "ONE", "TWO"],
        ),
        ({"type": "python", "functions": {}, "config": {"k": "${KEY}", "l": "plain"}}, ["KEY"]),
        ({"type": "mcp", "env": "{{ vars.env }}", "headers": 7}, []),
        ({"type": "nats", "env": {"T": "TOKEN"}}, []),
        ("${NOT}", []),
    ],
)
def test_variables_of_tool_sources_are_found(document: Any, named: list[str]) -> None:
    assert list(find_variables(document)) == named


# -- the command line --------------------------------------------------------------------------------------------------


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    return Workdir(tmp_path)


def test_providers_lists_all_providers(workdir: Workdir) -> None:
    workdir.write(
        "callboard.toml",
        "[providers]\nclasses = ['tests.support.own_providers:Shout', 'tests.support.own_providers:Cache']\n",
    )
    rows = workdir.run_json("providers")["providers"]
    assert next(row["uri"] for row in rows if row["kind"] == "call") == "mwl:provider.call/acme/shout/v1"
    assert {row["origin"].split("[")[0] for row in rows} == {"specification", "callboard", "providers.classes"}
    assert len(rows) == len(CONTRACTS) + 2
    said = workdir.run("providers").stdout
    assert said.index("shout/v1") < said.index("Middlewares") < said.index("cache/v1")


@pytest.mark.parametrize("name", ["http", ours("http")])
def test_a_contract_is_shown_by_uri_or_by_name(workdir: Workdir, name: str) -> None:
    told = workdir.run_json("providers", name)
    assert told["document"] == document_of(CONTRACTS[ours("http")])
    assert told["failures"]["Provider.Call.Http.Throttled"]
    said = workdir.run("providers", name).stdout
    assert "Provider.Call.Http.Throttled" in said
    assert re.search(r"max_bytes +integer", said)


def test_a_contract_shows_the_types_of_its_members(workdir: Workdir) -> None:
    said = workdir.run("providers", "retry").stdout
    members = re.findall(r"^( +)(match|codes|retryable|attempts|backoff|initial|jitter)  +(.+)$", said, re.MULTILINE)
    assert [(len(indent), name, kind) for indent, name, kind in members] == [
        (6, "match", "object, required"),
        (10, "codes", "array of string"),
        (10, "retryable", "boolean"),
        (6, "attempts", "integer, required"),
        (6, "backoff", "object"),
        (10, "initial", "string (duration), required"),
        (10, "jitter", 'none | full | equal | decorrelated, default "none"'),
    ]


def test_the_contract_of_a_custom_provider_is_shown(workdir: Workdir) -> None:
    workdir.write("callboard.toml", "[providers]\nclasses = ['tests.support.own_providers:Cache']\n")
    said = workdir.run("providers", "cache").stdout
    assert "onSuccess: control" in said
    assert "tests.support.own_providers:Cache" in said


def test_an_unknown_provider_is_refused_with_a_suggestion(workdir: Workdir) -> None:
    said = workdir.run("providers", "htp")
    assert said.exit_code == exits.FAILED
    assert "did you mean 'http'" in said.stderr
    told = json.loads(workdir.run("providers", "htp", "--json").stdout)
    assert told["error"]["code"] == "provider.unknown"


def test_an_unusable_class_is_a_configuration_error(workdir: Workdir) -> None:
    workdir.write("callboard.toml", "[providers]\nclasses = ['tests.support.own_providers:Mute']\n")
    said = workdir.run("providers")
    assert said.exit_code == exits.USAGE
    assert "tests.support.own_providers:Mute" in said.stderr
