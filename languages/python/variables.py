"""Context variables: those of the code that a workflow has set have their values in its steps too.

Libraries keep handlers and spans in such variables, which belong to the workflow's own loop. Only variables that a
module of the code has at its top level, defined or imported there, are therefore taken along.
"""

import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import Any

from callboard.languages.python.frames import is_in_bundle

Values = list[tuple[ContextVar[Any], Any]]


def variables_of(root: str, own: Mapping[str, Any]) -> Values:
    """Return the variables of the code at ``root``, and among the globals ``own`` of its module, that are set in the
    current context, with their values."""
    context = copy_context()
    if not context:
        return []
    known = _module_variables(root, len(sys.modules)) | _among(own)
    return [(variable, value) for variable, value in context.items() if variable in known]


@lru_cache(64)
def _module_variables(root: str, _modules: int) -> frozenset[ContextVar[Any]]:
    """Return the variables at the top level of the code's modules. The number of modules that are loaded says whether
    there may be further ones."""
    modules = [one for one in list(sys.modules.values()) if is_in_bundle(root, getattr(one, "__file__", None) or "")]
    return frozenset[ContextVar[Any]]().union(*(_among(vars(module)) for module in modules))


def _among(members: Mapping[str, Any]) -> frozenset[ContextVar[Any]]:
    return frozenset(one for one in list(members.values()) if isinstance(one, ContextVar))


def call_with(values: Values, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Call a function with the values."""

    def call() -> Any:
        for variable, value in values:
            variable.set(value)
        return function(*args, **named)

    return copy_context().run(call)


async def await_with(values: Values, function: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> Any:
    """Call a coroutine function with the values, which tasks that it starts have too."""
    with _set(values):
        return await function(*args, **named)


@contextmanager
def _set(values: Values) -> Generator[None]:
    tokens = [(variable, variable.set(value)) for variable, value in values]
    try:
        yield
    finally:
        for variable, token in tokens:
            with suppress(ValueError):  # the garbage collector closes a coroutine in another context
                variable.reset(token)
