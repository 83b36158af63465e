"""The schema of scripts says the same as their check."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from callboard.actors.models.script import check_script, script_schema
from tests.support.places import ROOT

VALIDATOR = Draft202012Validator(script_schema())
SCRIPTS = [path for folder in ("examples", "languages") for path in (ROOT / folder).rglob("script.y*ml")]

WHOLE: dict[str, Any] = {
    "turns": {
        "a": [
            {"text": "x", "data": {"found": 3}, "progress": ["x"], "delay_ms": 5, "usage": {"input_tokens": 1}},
            {"tool_calls": [{"tool": "find", "input": {"q": 1}}, {"tool": "find"}], "stop_reason": "tools"},
            {"error": {"code": "overloaded", "message": "busy", "data": 1}},
        ]
    },
    "routes": {"a": ["b", {"text": "b"}, {"error": "timeout"}]},
    "judges": {"a": ["pass", {"verdict": "fail", "reasoning": "no"}, {"text": "hm"}, {"error": "refused"}]},
    "asks": {"a": ["yes", {"text": "yes", "delay_ms": 0}]},
    "tools": {"find": [{"output": None}, {"error": "broken"}]},
    "default": {"text": "ok"},
}


def agree(script: Any) -> bool:
    valid = VALIDATOR.is_valid(script)
    assert valid == (not check_script(script)), (script, check_script(script))
    return valid


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_scripts_that_ship_are_valid(path: Path) -> None:
    assert agree(yaml.safe_load(path.read_text(encoding="utf-8")))


def test_the_repository_has_scripts_and_the_schema_is_valid() -> None:
    Draft202012Validator.check_schema(script_schema())
    assert SCRIPTS
    assert agree(WHOLE)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every object or list in a value, with each of its keys."""
    members = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    found = [(value, key) for key, _ in members]
    return [*found, *(one for _, inner in members if isinstance(inner, dict | list) for one in places(inner))]


# Copied: what is drawn becomes part of a script, which may be changed in it.
ODD = st.sampled_from(
    [None, True, 7, -1, "", "x", "Bad word", [], ["x"], {}, {"error": "x"}, {"text": "x"}, {"a": 1}]
).map(copy.deepcopy)


@given(st.data())
def test_the_schema_and_the_parser_agree_on_changed_scripts(data: st.DataObject) -> None:
    script = copy.deepcopy(WHOLE)
    for _ in range(data.draw(st.integers(1, 2))):
        holder, key = data.draw(st.sampled_from(places(script)))
        what = data.draw(st.sampled_from(["remove", "change", "add"]))
        if what == "change":
            holder[key] = data.draw(ODD)
        elif what == "remove":
            del holder[key]
        elif isinstance(holder, dict):
            name = data.draw(st.sampled_from(["error", "text", "output", "verdict", "data", "more"]))
            holder[name] = data.draw(ODD)
        if not script:
            break
    agree(script)
