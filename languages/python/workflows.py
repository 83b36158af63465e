"""Workflows: coroutine functions that runs can execute."""

import inspect
import sys
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

from callboard.languages.python.callables import refuse_as_function
from callboard.languages.python.errors import ContinueAsNew
from callboard.languages.python.loop import current_loop
from callboard.languages.python.values import Parameters, parameters_of
from callboard.lib.json_types import JSON, JsonSchema

P = ParamSpec("P")
R = TypeVar("R")


class WorkflowFunction(Generic[P, R]):
    """A coroutine function that a run can execute; calling it calls the function. See `workflow`."""

    def __init__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> None:
        if (reason := refuse_as_function(function, "workflow")) is not None:
            raise TypeError(reason)
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"a workflow is an `async def`, and {function.__qualname__} is not")
        self.name = function.__name__
        self.module = function.__module__
        self.function = function
        self.parameters = parameters_of(function)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        performed = current_loop() is not None
        return self.function(*args, **kwargs) if performed else self._repeat(*args, **kwargs)

    async def _repeat(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function outside of a run, and again each time it continues as a new run."""
        call = self.function(*args, **kwargs)
        while True:
            try:
                return await call
            except ContinueAsNew as again:
                call = self.function(*again.positional, **again.named)

    @property
    def entry(self) -> str:
        """The name of the workflow at workers: ``module:name``."""
        return f"{self.module}:{self.function.__qualname__}"

    @property
    def file(self) -> str:
        """The file of its module."""
        return getattr(sys.modules.get(self.module), "__file__", None) or self.function.__code__.co_filename

    @property
    def description(self) -> str:
        return inspect.getdoc(self.function) or ""

    @property
    def input_schema(self) -> JsonSchema:
        """The JSON Schema of a run's input."""
        whole = self.parameters.whole
        return self.parameters.input_schema if whole is None else self.parameters.codecs[whole].schema

    @property
    def output_schema(self) -> JsonSchema:
        """The JSON Schema of a run's output."""
        return self.parameters.result.schema

    def input_of(self, *args: Any, **kwargs: Any) -> JSON:
        """Return the input for which `arguments` returns these arguments.

        :raises TypeError, ValueError: if the function does not take them, or one does not fit its type
        """
        whole, codecs = self.parameters.whole, self.parameters.codecs
        given = self.parameters.signature.bind(*args, **kwargs).arguments
        if whole is not None:
            return codecs[whole].encode(given[whole]) if given else None
        return {name: codecs[name].encode(value) for name, value in given.items()}

    def input_for(self, given: JSON) -> JSON:
        """Return the input for which `arguments` returns the only argument ``given``; an object is an input already."""
        parameters = self.parameters
        if given is None or isinstance(given, dict) or parameters.whole is not None or len(parameters.codecs) != 1:
            return given
        return dict.fromkeys(parameters.codecs, given)

    def arguments(self, given: JSON) -> dict[str, Any]:
        """Return the arguments of the function for an input.

        :raises InputMisfit: if the input does not fit the parameters; it has all problems, with their places
        """
        whole = self.parameters.whole
        if whole is None:
            return arguments_of(self.parameters, self.name, given)
        if given is None and self.parameters.signature.parameters[whole].default is not inspect.Parameter.empty:
            return {}
        try:
            return {whole: self.parameters.codecs[whole].decode(given)}
        except (ValueError, TypeError) as error:
            raise InputMisfit(problems_of(error)) from error


class InputMisfit(ValueError):
    """An input does not fit; ``problems`` has the place and the text of each problem."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{where or 'it'}: {what}" for where, what in problems))
        self.problems = problems


def arguments_of(parameters: Parameters, name: str, given: JSON) -> dict[str, Any]:
    """Return the arguments of the function ``name`` from an object with a member for each.

    :raises InputMisfit: if the object does not fit the parameters; it has all problems, with their places
    """
    expected = parameters.signature.parameters
    if not isinstance(given, dict | None):
        raise InputMisfit([("", f"is not an object with {', '.join(expected) or 'no members'}")])
    members: dict[str, JSON] = given or {}
    problems = [(member, f"is not a parameter of {name}") for member in members if member not in expected]
    found: dict[str, Any] = {}
    for member, parameter in expected.items():
        if member in members:
            try:
                found[member] = parameters.codecs[member].decode(members[member])
            except (ValueError, TypeError) as error:
                problems += problems_of(error, member)
        elif parameter.default is inspect.Parameter.empty:
            problems.append((member, "is missing"))
    if problems:
        raise InputMisfit(problems)
    return found


def problems_of(error: Exception, at: str = "") -> list[tuple[str, str]]:
    """Return the problems in an exception of a codec, each with its place below ``at``."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return [(at, str(error))]
    return [
        (".".join(str(step) for step in ([at] if at else []) + list(one["loc"])), str(one["msg"]))
        for one in errors(include_url=False, include_context=False, include_input=False)
    ]


def workflow(function: Callable[P, Coroutine[Any, Any, R]]) -> WorkflowFunction[P, R]:
    """Make a coroutine function a workflow, which workers that host its code can run.

    Every effect that it awaits is recorded, so that another worker continues the run after a crash. The annotations
    determine the JSON Schemas of a run's input and output.

    :raises TypeError: if it is not a coroutine function, or a type in it has no form in JSON
    """
    return WorkflowFunction(function)
