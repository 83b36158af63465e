"""JSON Schemas that strangers wrote, followed no deeper than the interpreter's stack bears.

``jsonschema`` follows references by recursion, also those of the schema of schemas. Where the stack ends inside a
lookup, which is Rust, what comes out is no `RecursionError` but a panic that no ``except Exception`` stops, and with it
the worker would end. It stands on this floor because tools (actors) and interpreters (languages) both need it.
"""

import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import FormatChecker
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

LOOKUP_FRAMES = 100
"""What a lookup may need of the stack, in frames, with plenty to spare."""

TOO_DEEP = "nested too deep"
ENDLESS = "the schema refers to itself without end, or the value is nested too deep"
"""What there is to say when a `RecursionError` comes out of a validation."""


@cache
def followable(validator: "type[Validator]") -> "type[Validator]":
    """Return a validator class of ``jsonschema`` whose references end in a `RecursionError` if they do not end."""
    from jsonschema.validators import extend

    known: Any = validator.VALIDATORS
    return extend(validator, {keyword: _guarded(known[keyword]) for keyword in REFERENCES if keyword in known})


def schema_error(schema: Any, version: "type[Validator]", formats: "FormatChecker") -> "ValidationError | None":
    """Return the first thing that keeps a value from being a schema of a version, or None if it is one.

    :raises RecursionError: if it is nested too deep to be looked at
    """
    from jsonschema_specifications import REGISTRY

    kind: Any = followable(version)
    checker = kind(kind.META_SCHEMA, registry=REGISTRY, format_checker=formats)
    return next(checker.iter_errors(schema), None)


def check_stack() -> None:
    """Make sure that a reference can still be looked up.

    :raises RecursionError: if the stack is nearly full
    """
    try:
        sys._getframe(sys.getrecursionlimit() - LOOKUP_FRAMES)
    except ValueError:
        # There are not so many frames.
        return
    raise RecursionError(ENDLESS)


def _guarded(follow: Callable[..., Iterable[Any] | None]) -> Callable[..., Iterable[Any] | None]:
    def guarded(*what: Any) -> Iterable[Any] | None:
        check_stack()
        return follow(*what)

    return guarded
