"""An action of a service: what it was given, with which credentials, and how it is refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from callboard.actors.skills.service import ServiceFailed

Payload = dict[str, Any]
"""What a node puts out of an action."""


class ActionRefused(Exception):
    """An action cannot be carried out. ``code`` is the document's word for it, ``solution`` says what to do."""

    def __init__(self, code: str, message: str, solution: str) -> None:
        super().__init__(message)
        self.code = code
        self.solution = solution


@dataclass(frozen=True, slots=True)
class Action:
    """What a node asks of a service; ``env`` are the worker's variables, and nobody else's."""

    name: str
    input: Any
    configurations: Mapping[str, Any]
    env: Mapping[str, str]
    idempotency_key: str

    def given(self, *names: str) -> Any:
        """The first of these that is neither null nor empty, of the input or else of the configurations."""
        own: Mapping[str, Any] = self.input if isinstance(self.input, dict) else {}
        for where in (own, self.configurations):
            for name in names:
                if where.get(name) not in (None, "", [], {}):
                    return where[name]
        return None

    def needed(self, *names: str) -> Any:
        """The same.

        :raises ActionRefused: if none is given
        """
        found = self.given(*names)
        if found is None:
            raise ActionRefused("missing_parameters", f"{self.name} needs {names[0]}", f"give {names[0]} in the input")
        return found

    def text(self, *names: str) -> str:
        """The same as text; empty if none is given."""
        found = self.given(*names)
        return "" if found is None else str(found)

    def members(self, *names: str) -> Payload:
        """Those of these that are given, by their names."""
        return {name: value for name in names if (value := self.given(name)) is not None}

    def token(self, member: str, variable: str) -> str:
        """The credential: the node's own, or else the worker's.

        :raises ActionRefused: if there is none
        """
        found = self.configurations.get(member) or self.env.get(variable, "").strip()
        if not isinstance(found, str) or not found:
            message = f"{self.name} has no token"
            raise ActionRefused("missing_oauth_token", message, f"whoever runs the worker has to set {variable}")
        return found

    def address(self, variable: str, default: str) -> str:
        """Where the service is; only whoever runs the worker can say that it is elsewhere."""
        return self.env.get(variable, "").strip() or default

    def unsupported(self, *known: str) -> ActionRefused:
        """The refusal of an action that is none of the service's."""
        message = f"there is no action {self.name!r} here"
        return ActionRefused("unsupported_operation", message, f"one of {', '.join(sorted(known))}")


def code_of(failed: ServiceFailed) -> str:
    """The document's word for why a service refuses."""
    match failed.status:
        case 401 | 403:
            return "authentication_error"
        case 404:
            return "resource_not_found"
        case 429:
            return "rate_limit_exceeded"
        case _:
            return "api_error"
