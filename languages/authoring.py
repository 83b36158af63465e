"""What a language offers to those who write in it, beyond its port: files that it names, shape, inputs, other forms."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from pydantic import BaseModel

from callboard.bus.events import Outline, Problem
from callboard.languages.language import Definition
from callboard.languages.node_types import NodeTypes
from callboard.languages.triggers import Begun, Entrance, PassedOver, Received
from callboard.lib.json_types import JsonSchema


class About(Struct, frozen=True):
    """What a document says of itself.

    ``inputs`` are the declared fields of its input, by name, as they stand there; ``parameters`` are what it takes as
    arguments.
    """

    title: str = ""
    description: str = ""
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])


class Times(Struct, frozen=True):
    """The times at which a document has itself started: a cron expression in a time zone.

    Of due times that no one was there for the latest ``catch_up`` are made up for.
    """

    cron: str
    timezone: str = "UTC"
    catch_up: int = 1


class Conformance(Struct, frozen=True):
    """The profiles that a language claims to satisfy, and how its results are held against those that are expected."""

    claim: Sequence[str]
    differences: Callable[[Any, Any], list[str]]


class Authoring(Struct, frozen=True):
    """``files`` takes a document and a run's input and returns the named paths by field; ``outline`` the shape.

    ``skills_beside`` says that a list of skills may lie beside the definition; ``skills`` returns the ids of those that
    a document asks for, which the project's skill files may define; ``dry_runs`` that a run may only be tried out.
    ``options`` is what a start may say about how its definition runs; None: a start of this language takes no options.
    ``misfits`` returns what is wrong with the arguments that a start is to bring. ``beside`` returns patterns of files
    that travel along if they are there. ``report`` makes the result of a check, given every problem, in the shape that
    the language's specification has for it. ``forms`` writes a definition's text in another form, by the name of that,
    and ``from_forms`` reads it back. ``children`` returns the paths, by field, of definitions that are run as children;
    ``conformance`` is what a corpus of cases bears out, ``node_types`` the types that nodes can have.
    ``times`` returns when a document has itself started, if it says so; ``begun`` what its triggers, or the one that is
    named, make of something that came in, and ``entrances`` where those take requests in.
    ``schema`` makes the JSON Schema of a document; of one that is not JSON and no YAML, of the form that is.
    ``descriptions`` has what editors show of each of its members, by ``Owner.member`` or ``member``.
    ``of_start`` are codes of warnings that say nothing of a definition by itself.
    """

    files: Callable[[Any, Any], dict[str, str]] = lambda _document, _input: {}
    outline: Callable[[Any], Outline] = lambda _document: Outline()
    skills_beside: bool = False
    dry_runs: bool = False
    options: type[BaseModel] | None = None
    about: Callable[[Any], About] = lambda _document: About()
    skills: Callable[[Any], frozenset[str]] = lambda _document: frozenset()
    misfits: Callable[[Any, dict[str, Any]], list[Problem]] = lambda _document, _arguments: []
    beside: Callable[[Any, Any], list[str]] = lambda _document, _input: []
    of_start: frozenset[str] = frozenset()
    report: Callable[[str, Sequence[Problem]], Any] | None = None
    forms: Mapping[str, Callable[[str], str | list[Problem]]] = field(default_factory=dict[str, Any])
    from_forms: Mapping[str, Callable[[str], str | list[Problem]]] = field(default_factory=dict[str, Any])
    children: Callable[[Definition[Any]], dict[str, str]] = lambda _definition: {}
    times: Callable[[Any], Times | None] = lambda _document: None
    begun: Callable[[Any, Received, str | None], list[Begun | PassedOver]] = lambda _document, _received, _trigger: []
    entrances: Callable[[Any], list[Entrance]] = lambda _document: []
    schema: Callable[[], JsonSchema] | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict[str, str])
    conformance: Conformance | None = None
    node_types: NodeTypes | None = None
