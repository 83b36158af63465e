"""Plans: a definition that was parsed, and a start of it that was admitted, with all that the run needs."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from callboard.bus.events import Environment, Outline, Problem
from callboard.bus.outgoing_subjects import Addressed
from callboard.lib.json_types import JSON

D = TypeVar("D")

STRICT = "strict"
"""The option that every language has: warnings refuse the start."""


RULES = "rules"
"""The option of a plan that has the number of its run's rules (`Language.rules`). A fork keeps that of its origin."""


class Definition(Struct, Generic[D], frozen=True):
    """A parsed definition. ``document`` is the language's own model, ``canonical`` the bytes that are hashed.

    ``name`` is empty if the language's documents have no name; ``comment`` is then the document's own description.
    ``objections`` refuse new starts, as those of a `Plan` do.
    """

    language: str
    name: str
    source: str
    canonical: bytes
    document: D
    warnings: tuple[Problem, ...] = ()
    comment: str = ""
    objections: tuple[Problem, ...] = ()

    @property
    def hash(self) -> str:
        return sha256(self.canonical).hexdigest()


class TurnParameters(Struct, frozen=True):
    """The parameters that a place in a definition, or an option, sets for model turns. ``model`` is empty for the
    default model of the run."""

    where: str
    names: list[str]
    model: str = ""


class Needs(Struct, frozen=True):
    """The needs of a run: what it requires of the worker that begins it.

    ``model`` says whether it may use a default model. Environment variables are listed by name: ``skills`` by skill,
    ``borrowed`` by any other part that reads them; ``environment`` are those whose values tools may get, which are
    secrets. ``providers`` are the URIs of providers that Callboard does not ship. ``subjects`` are the NATS subjects
    of its requests, as far as the definition spells them out. ``parameters`` are those it sets for model turns.
    """

    model: bool = True
    skills: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    borrowed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    environment: list[str] = field(default_factory=list[str])
    providers: list[str] = field(default_factory=list[str])
    subjects: list[Addressed] = field(default_factory=list[Addressed])
    parameters: list[TurnParameters] = field(default_factory=list[TurnParameters])

    def unset(self, variables: Mapping[str, str]) -> dict[str, list[str]]:
        """Return the required variables that are not set or empty, by the skill or part that requires them."""
        wanted = {**self.skills, **self.borrowed}
        unset = {what: [name for name in names if not variables.get(name)] for what, names in wanted.items()}
        return {what: names for what, names in unset.items() if names}


class Plan(Struct, Generic[D], frozen=True):
    """An admitted start: the definition and the contents of the start message, with defaults filled in."""

    definition: Definition[D]
    input: JSON
    arguments: dict[str, Any]
    options: dict[str, Any]
    outline: Outline
    needs: Needs = field(default_factory=Needs)
    warnings: tuple[Problem, ...] = ()
    breakpoints: tuple[str, ...] | None = None
    """The steps before which the run pauses; None: those of its start."""
    behalf: str = ""
    """The user whose accounts at services are used, if that user has any; empty: no user's."""
    shortfalls: Callable[[Environment], list[Problem]] = lambda _environment: []
    """Takes the environment that a worker would record; returns warnings about everything the run would lack there."""
    objections: tuple[Problem, ...] = ()
    """Problems that earlier versions did not report: admission refuses the start, but recorded runs replay."""
    diverged: str = ""
    """The failure code of a run that diverges in a replay, if divergence is a fault of its definition. Empty: such a
    run waits for a version that can replay it."""
    adopts: str = ""
    """The digest of this process's code, if the definition names another one. The run is replayed with it before it is
    claimed, and continues with it if the replay agrees with the log."""
    check_variables: Callable[[Mapping[str, JSON]], list[Problem]] = lambda _variables: []
    """Takes the variables that a resume or a fork sets; returns their problems. It must be pure."""
