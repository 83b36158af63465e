"""Options that are given as KEY=VALUE are read as their language has them."""

import pytest

from callboard.languages.kit import kits
from callboard.languages.registry import authoring
from callboard.runtime.client.errors import UsageInvalid
from callboard.service.files.option_values import option_values


@pytest.mark.parametrize(
    ("language", "given", "found"),
    [
        ("playbook", {"autonomous": "true", "max_tokens": "100"}, {"autonomous": True, "max_tokens": 100}),
        ("playbook", {"expires_after": "PT5M", "temperature": "0.5"}, {"expires_after": "PT5M", "temperature": 0.5}),
        ("playbook", {"elicit.3": "true", "elicit.4": "no"}, {"elicit": {"3": "true", "4": "no"}}),
        ("playbook", {"connections.shop": "caller"}, {"connections": {"shop": "caller"}}),
        ("playbook", {"prompts": '{"mcp:greet": "Hello."}'}, {"prompts": {"mcp:greet": "Hello."}}),
        ("playbook", {"max_tokens": "many"}, {"max_tokens": "many"}),  # what admission will refuse, with the reason
        ("graph", {"start_from_node": "5", "parallel": "true"}, {"start_from_node": "5", "parallel": True}),
        ("workflow", {"max_steps": "7", "config.PORT": "80"}, {"max_steps": 7, "config": {"PORT": "80"}}),
        (None, {"max_steps": "7", "note": "seven"}, {"max_steps": 7, "note": "seven"}),
    ],
)
def test_a_value_has_its_options_type(language: str | None, given: dict[str, str], found: object) -> None:
    assert option_values(given, language) == found


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("flow", "the language flow has no options"),
        (
            "graph",
            "unknown option of the language graph: 'turbo'; "
            "expected one of start_from_node, trigger, user_id, parallel",
        ),
    ],
)
def test_an_unknown_option_is_refused(language: str, said: str) -> None:
    with pytest.raises(UsageInvalid, match=said):
        option_values({"turbo": "on"}, language)


@pytest.mark.parametrize("language", kits())
def test_options_have_a_description(language: str) -> None:
    options = authoring(language).options
    assert options is None or options.__doc__
