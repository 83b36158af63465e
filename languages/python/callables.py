"""The functions that can be workflows and steps. A step may also be a static method, or a method of an object that
exists already."""

import inspect
from typing import Any


def refuse_as_function(function: Any, what: str) -> str | None:
    """Return why something cannot be a step or a workflow, as ``what`` says, and the remedy; None if it can."""
    kind = type(function)
    shown = getattr(function, "__qualname__", None) or f"an object of type {kind.__name__}"
    if isinstance(function, classmethod):
        return f"{shown} is a class method, whose class is not recorded: make the {what} a function or a static method"
    if isinstance(function, type):
        return f"{shown} is a class, but a {what} must be a function: write one that makes the object"
    if kind.__module__.startswith("callboard."):
        known = kind.__name__.removesuffix("Function").lower()
        return f"{shown} is a {known} already, and cannot be a {what} too"
    if not callable(function) or not hasattr(function, "__qualname__"):
        return f"a {what} must be a function, and not an object of type {kind.__name__}: write a function that calls it"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return f"{shown} is a generator, but a {what} returns one value: return a list"
    if _takes_its_object(function):
        return (
            f"{shown} is a method: the object that it is called on is not recorded. Make the {what} a function or a "
            "static method, and pass the values that it needs as arguments"
        )
    return None


def _takes_its_object(function: Any) -> bool:
    """Return whether a function that is defined in a class takes the object, or the class, as its first argument."""
    if inspect.ismethod(function) or "." not in getattr(function, "__qualname__", "").rpartition("<locals>.")[2]:
        return False
    try:
        return next(iter(inspect.signature(function).parameters), "") in ("self", "cls")
    except ValueError:
        return False
