"""The port for authors: what a language knows about its documents beyond executing them, such as files and outlines."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from pydantic import BaseModel

from callboard.bus.events import Outline, Problem
from callboard.languages.node_types import NodeTypes
from callboard.languages.plan import Definition
from callboard.languages.triggers import Begun, Entrance, PassedOver, Received
from callboard.lib.json_types import JsonSchema


class About(Struct, frozen=True):
    """A document's description of itself.

    ``inputs`` are the declared fields of its input, by name, as the document has them; ``parameters`` are the schemas
    of its arguments, by name.
    """

    title: str = ""
    description: str = ""
    inputs: dict[str, Any] = field(default_factory=dict[str, Any])
    parameters: dict[str, Any] = field(default_factory=dict[str, Any])


class Times(Struct, frozen=True):
    """The times at which a document is to be started: a cron expression in a time zone.

    Of the due times that passed while no scheduler was running, the latest ``catch_up`` are started late.
    """

    cron: str
    timezone: str = "UTC"
    catch_up: int = 1


class Conformance(Struct, frozen=True):
    """The profiles that a language claims to satisfy, and a function that compares its results with the expected ones.

    ``differences`` takes the expected and the actual result and returns one line per difference.
    """

    claim: Sequence[str]
    differences: Callable[[Any, Any], list[str]]


class Authoring(Struct, frozen=True):
    """The functions and tables of a language for authors. Each has a default for languages that lack the feature.

    Files and children: ``files`` takes a document and a run's input and returns the paths of files that the document
    names, by field. ``beside`` returns patterns of files that are sent with a start if they exist. ``children`` returns
    the paths, by field, of definitions that run as children. ``skills_beside`` says that a list of skills may be
    stored beside the definition; ``skills`` returns the ids of the skills that a document uses, and
    ``skills_defined`` of those for which it needs no file.

    Starts: ``options`` is the model of a start's options (None: no options). ``misfits`` returns what is wrong with the
    arguments of a start. ``dry_runs`` says that a start may ask for a dry run. ``of_start`` are the codes of warnings
    that concern a start and not the definition.

    Times and triggers: ``times`` returns when a document is to be started. ``begun`` returns the starts that the
    document's triggers, or the named one, make of a request; ``entrances`` where the triggers receive requests.

    Documents: ``outline`` returns the shape of a document, ``about`` its description of itself. ``report`` writes the
    problems of a check in the form that the language's specification defines. ``forms`` writes a definition's text in
    another form, by the name of the form, and ``from_forms`` reads it back. ``with_prompt`` takes a definition's text,
    the id of a node and a prompt, and returns the text with this prompt; None if the node does not exist or has none.
    ``schema`` makes the JSON Schema of a document (if documents are neither JSON nor YAML, of the form that is).
    ``descriptions`` has the texts that editors show for members, by ``Owner.member`` or ``member``. ``node_types`` are
    the types of nodes, ``conformance`` the claimed profiles.
    """

    files: Callable[[Any, Any], dict[str, str]] = lambda _document, _input: {}
    outline: Callable[[Any], Outline] = lambda _document: Outline()
    skills_beside: bool = False
    dry_runs: bool = False
    options: type[BaseModel] | None = None
    about: Callable[[Any], About] = lambda _document: About()
    skills: Callable[[Any], frozenset[str]] = lambda _document: frozenset()
    skills_defined: Callable[[Any], frozenset[str]] = lambda _document: frozenset()
    misfits: Callable[[Any, dict[str, Any]], list[Problem]] = lambda _document, _arguments: []
    beside: Callable[[Any, Any], list[str]] = lambda _document, _input: []
    of_start: frozenset[str] = frozenset()
    report: Callable[[str, Sequence[Problem]], Any] | None = None
    forms: Mapping[str, Callable[[str], str | list[Problem]]] = field(default_factory=dict[str, Any])
    from_forms: Mapping[str, Callable[[str], str | list[Problem]]] = field(default_factory=dict[str, Any])
    with_prompt: Callable[[str, str, str], str | None] | None = None
    children: Callable[[Definition[Any]], dict[str, str]] = lambda _definition: {}
    times: Callable[[Any], Times | None] = lambda _document: None
    begun: Callable[[Any, Received, str | None], list[Begun | PassedOver]] = lambda _document, _received, _trigger: []
    entrances: Callable[[Any], list[Entrance]] = lambda _document: []
    schema: Callable[[], JsonSchema] | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict[str, str])
    conformance: Conformance | None = None
    node_types: NodeTypes | None = None
