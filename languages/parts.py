"""Parts of pydantic models of documents: a base class of closed, strict, frozen objects, and a few plain types.

The rules are those of the published JSON Schemas (``workflow.json``, ``skill.json``): no field may be null unless it
may hold any value, whole numbers may be written as ``3.0``, and no value is converted silently.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints

from callboard.languages.problems import VARIANT, Complaint, kind_of

T = TypeVar("T")


class Part(BaseModel):
    """An inner object of a document: closed, strict, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise Complaint("SCHEMA", "is null", "a value, or leave the field out")
    return value


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _finite_number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Complaint("SCHEMA", f"is {kind_of(value)}", "a number")
    return value


Text = Annotated[str, StringConstraints(min_length=1)]
"""A string that is not empty."""

Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number, also when written with a decimal point."""

Number = Annotated[Any, BeforeValidator(_finite_number)]
"""A number; booleans are not numbers."""

Maybe = Annotated[T | None, BeforeValidator(_refuse_null)]
"""A field that may be omitted (None) but must not be null."""

Texts = list[Text]
"""A list of non-empty strings; the list may be empty."""


def one_of(*words: str) -> BeforeValidator:
    """Return a validator of the word that selects a variant of an object; its error lists all words."""

    def check(value: Any) -> Any:
        if value not in words:
            raise Complaint("SCHEMA", f"{value!r} is not allowed", f"one of {', '.join(words)}")
        return value

    return BeforeValidator(check)


def variant_by(
    field: str, words: Collection[str], otherwise: Callable[[Mapping[str, Any]], str]
) -> Callable[[Any], str]:
    """Return a discriminator: it tags an object with the variant that ``field`` names, or that ``otherwise`` guesses.

    So an object with a wrong or missing word is still checked as some variant, and the word is reported as wrong.
    """

    def tag(raw: Any) -> str:
        if not isinstance(raw, Mapping):
            word = getattr(raw, field, None) or otherwise({})
        else:
            word = raw[field] if raw.get(field) in words else otherwise(raw)
        return f"{VARIANT}{word}"

    return tag
