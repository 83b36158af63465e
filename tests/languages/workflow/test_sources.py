"""Sources are classified, resolved once before any node, cached and recorded (checklist 21–29)."""

from hashlib import sha256
from typing import Any

import pytest

from callboard.bus import events as ev
from callboard.bus.effects import Text
from callboard.bus.events import Environment
from callboard.languages.workflow.sources import Source
from callboard.testing import fails
from tests.support.workflows import Ran, by_value, document, run, run_elsewhere

URL = "https://example.com/a.md"


@pytest.mark.parametrize(
    ("raw", "kind", "value"),
    [
        ("Be helpful.", "inline", "Be helpful."),
        ("  Be helpful.\n", "inline", "Be helpful."),
        ("./a.md", "file", "./a.md"),
        ("../a.md", "file", "../a.md"),
        ("/a.md", "file", "/a.md"),
        (" ./a.md ", "file", "./a.md"),
        (".hidden", "inline", ".hidden"),
        ("http://x.test/a", "url", "http://x.test/a"),
        ("https://x.test/a", "url", "https://x.test/a"),
        ("ftp://x.test/a", "inline", "ftp://x.test/a"),
        ({"inline": " ./a.md "}, "inline", " ./a.md "),
        ({"file": " a.md "}, "file", "a.md"),
        ({"url": "https://x.test/a", "type": "fetch"}, "url", "https://x.test/a"),
    ],
)
def test_21_a_source_is_inline_a_file_or_a_url(raw: Any, kind: str, value: str) -> None:
    source = Source.model_validate(raw)
    assert (source.kind, source.value, source.origin) == (kind, value, raw)


def find_sources(ran: Ran) -> dict[str, dict[str, Any]]:
    [found] = ran.of(ev.SourcesResolved)
    return found.sources


def test_22_and_29_all_sources_are_resolved_before_the_first_node_and_recorded_by_field() -> None:
    raw = document(
        {"a": {"rules": ["r"], "context": {"only": True, "sources": ["c", "d"]}}, "b": {}},
        [("a", "b")],
        rules=["wr"],
        context=["wc"],
    )
    ran = run(raw, input={"rules": "ir", "context": ["ic", 5, {"inline": "x"}, ""]})
    assert list(find_sources(ran)) == [
        "input.rules[0]",
        "input.context[0]",
        "input.context[2]",
        "workflow.rules[0]",
        "workflow.context[0]",
        "nodes.a.instruction",
        "nodes.a.rules[0]",
        "nodes.a.context[0]",
        "nodes.a.context[1]",
        "nodes.b.instruction",
    ]
    assert ran.types().index("sources.resolved") < ran.types().index("node.enter")
    assert ran.of(ev.EffectCall) == []


def test_27_the_record_of_an_inline_source_has_its_content_and_hash() -> None:
    assert find_sources(run(document({"a": {"instruction": {"inline": "Hé."}}}))) == {
        "nodes.a.instruction": {
            "content": "Hé.",
            "kind": "inline",
            "origin": {"inline": "Hé."},
            "resolver": "inline",
            "hash": sha256("Hé.".encode()).hexdigest()[:16],
        }
    }


def test_27_an_inline_source_is_used_as_it_is() -> None:
    content = "  Be.\n"
    ran = run(document({"a": {"instruction": content}}))
    assert find_sources(ran)["nodes.a.instruction"]["content"] == content
    opening = ran.of(ev.ModelCall)[0].messages[0].parts[0]
    assert isinstance(opening, Text)
    assert opening.text.startswith(f"## Instruction\n\n{content}\n\n## Context")


def test_27_the_record_of_a_file_or_url_has_its_path_or_time() -> None:
    raw = document({"a": {"instruction": URL}}, rules=["./r.md", {"file": "./prompts/../p.md"}])
    sources = {
        URL: {"content": "Do it.", "fetchedAt": "2026-11-20T12:00:00.000Z"},
        "r.md": {"content": "Rule.", "sourcePath": "/srv/r.md"},
    }
    ran = run(raw, files={"./p.md": "\ufeffBundled."}, effects={"source": by_value(sources)})
    found = find_sources(ran)
    assert found["nodes.a.instruction"] == {
        "content": "Do it.",
        "kind": "url",
        "origin": URL,
        "resolver": "fetch",
        "hash": sha256(b"Do it.").hexdigest()[:16],
        "fetchedAt": "2026-11-20T12:00:00.000Z",
    }
    assert (found["workflow.rules[0]"]["sourcePath"], found["workflow.rules[0]"]["resolver"]) == ("/srv/r.md", "file")
    assert (found["workflow.rules[1]"]["content"], found["workflow.rules[1]"]["sourcePath"]) == ("Bundled.", "/p.md")
    assert ran.keys(ev.EffectCall) == ["#1.1!source.0", "#1.1!source.1"]
    assert [(call.kind_, call.request) for call in ran.of(ev.EffectCall)] == [
        ("source", {"kind": "file", "value": "r.md"}),
        ("source", {"kind": "url", "value": URL}),
    ]
    [entered] = ran.of(ev.NodeEnter)
    assert entered.instruction == "Do it."


def test_23_a_source_that_is_named_twice_is_read_once() -> None:
    raw = document(
        {"a": {"instruction": URL, "rules": ["./a/../r.md"]}, "b": {"instruction": {"url": URL}}},
        [("a", "b")],
        rules=["./r.md", "./r.md"],
    )
    ran = run(raw, effects={"source": by_value({URL: {"content": "x"}, "r.md": {"content": "y"}})})
    assert len(ran.of(ev.EffectCall)) == 2
    assert {source["content"] for source in find_sources(ran).values()} == {"x", "y"}


def test_28_a_failed_source_fails_the_run_before_any_node() -> None:
    raw = document({"a": {"instruction": URL}}, rules=["./r.md"], context=["./c.md"])
    sources = {
        URL: fails("SOURCE_URL_HTTP_ERROR", "404"),
        "r.md": fails("SOURCE_FILE_NOT_FOUND", "no r.md"),
        "c.md": {"content": "fine"},
    }
    ran = run(raw, effects={"source": by_value(sources)})
    assert (ran.end.status, ran.end.results, ran.end.output) == ("failed", None, None)
    assert (ran.error.code, ran.error.message) == ("SOURCE_FILE_NOT_FOUND", "no r.md (workflow.rules[0])")
    assert set(ran.error.details["problems"]) == {"workflow.rules[0]", "nodes.a.instruction"}
    assert ran.types() == ["effect.call"] * 3


def test_26_a_worker_that_is_offline_fetches_nothing_but_reads_files() -> None:
    raw = document({"a": {"instruction": URL}}, rules=["./r.md"])
    sources = {"source": by_value({"r.md": {"content": "fine"}, URL: {"content": "x"}})}
    online = run(raw, effects=sources)
    assert online.end.status == "completed"
    ran = run_elsewhere(online, Environment(offline=True), sources)
    assert ran.error.code == "SOURCE_OFFLINE_REQUIRES_FETCH"
    assert [call.request["kind"] for call in ran.of(ev.EffectCall)] == ["file"]
