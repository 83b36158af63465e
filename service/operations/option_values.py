"""Values of options as people write them: ``KEY=VALUE``, read as the definition's language has the option's type."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from callboard.languages.registry import authoring
from callboard.service.operations.errors import UsageInvalid
from callboard.service.operations.json_values import NotJson, json_of


def option_values(given: Mapping[str, str], language: str | None = None) -> dict[str, Any]:
    """Return the options of a start by name. ``KEY.MEMBER`` is a member of one that is a map.

    A value that is no text is read as JSON. Where the language is not known, as of a definition that is only named,
    what can be read as JSON is no text. Whether a value is one that the option may have, admission says.

    :raises UsageInvalid: if the language has no such option
    """
    values: dict[str, Any] = {}
    for key, text in given.items():
        name, _, member = key.partition(".")
        value = _value(_options_of(language, name), name, member, text) if language else _json_or_text(text)
        if member:
            values.setdefault(name, {})[member] = value
        else:
            values[name] = value
    return values


def _options_of(language: str, name: str) -> type[BaseModel]:
    options = authoring(language).options
    if options is None:
        raise UsageInvalid(f"a {language} takes no options", "--option")
    if name not in options.model_fields:
        raise UsageInvalid(f"a {language} has no option {name!r}; it has {', '.join(options.model_fields)}", "--option")
    return options


def _value(options: type[BaseModel], name: str, member: str, text: str) -> Any:
    """The text itself, if the option may have it for a value."""
    try:
        options.model_validate({name: {member: text} if member else text})
    except ValidationError:
        return _json_or_text(text)
    return text


def _json_or_text(text: str) -> Any:
    try:
        return json_of(text)
    except NotJson:
        return text
