"""Parses options in the form ``KEY=VALUE``, according to the type of the option in the definition's language."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from callboard.languages.registry import authoring
from callboard.runtime.client.errors import UsageInvalid
from callboard.service.files.json_values import NotJson, json_of


def option_values(given: Mapping[str, str], language: str | None = None) -> dict[str, Any]:
    """Return the options of a start by name. ``KEY.MEMBER`` is a member of an option that is a map.

    A value stays a text if the option may be a text; otherwise it is parsed as JSON. If the language is not known,
    because the definition is registered, every value that is valid JSON is parsed. Admission checks the values.

    :raises UsageInvalid: if the language does not have the option
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
        raise UsageInvalid(f"the language {language} has no options", "--option")
    if name not in options.model_fields:
        known = ", ".join(options.model_fields)
        raise UsageInvalid(f"unknown option of the language {language}: {name!r}; expected one of {known}", "--option")
    return options


def _value(options: type[BaseModel], name: str, member: str, text: str) -> Any:
    """Return the text itself if it is a valid value of the option, else the JSON value."""
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
