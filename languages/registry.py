"""The registry of languages: finds the language of a text, parses definitions and plans starts in any language.

`callboard.languages.kit` lists the languages; their modules are imported on first use.
"""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cache
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.bus.subjects import token
from callboard.languages.authoring import About, Authoring
from callboard.languages.hosting import Hosting
from callboard.languages.kit import every_kit, find_kit, kits
from callboard.languages.language import Language
from callboard.languages.plan import RULES, STRICT, Definition, Plan
from callboard.languages.problems import FIELDS_LISTED_MAX, Tree, find_misspelled, kind_of
from callboard.languages.provider_contracts import ProviderContracts
from callboard.languages.source_text import read_document
from callboard.lib.json_types import JSON

_SEVERAL = "the text could be any of"

NEARNESS_MIN = 1.5
"""How near a document's fields must be to a language's; each field that agrees counts as 1."""

TITLE_CHARS_MAX = 72
"""The greatest length of a title, in characters."""

_SENTENCE_END = re.compile(r"[.:;!?](?=\s|$)|\n")


def language(name: str) -> Language[Any]:
    """Return a language by name.

    :raises KeyError: if the language does not exist
    """
    kit = find_kit(name)
    if kit is None:
        raise KeyError(name)
    return kit.language


def authoring(name: str) -> Authoring:
    """Return the authoring port of a language; an empty one if the language is unknown or has none."""
    return kits()[name].authoring if name in kits() else Authoring()


@cache
def provider_contracts() -> ProviderContracts:
    """Return the provider contracts of the language that has providers.

    :raises LookupError: if no language has them
    """
    module = next((kit.providers_module for kit in kits().values() if kit.providers_module), None)
    if module is None:
        raise LookupError("no language has providers")
    return import_module(module).PROVIDER_CONTRACTS


def code_language() -> str:
    """Return the name of the language whose definitions are code.

    :raises LookupError: if no language has code as definitions
    """
    name = next((kit.name for kit in kits().values() if kit.code_module), None)
    if name is None:
        raise LookupError("no language hosts code")
    return name


@cache
def hosting() -> Hosting:
    """Return the hosting port of the language whose definitions are code.

    :raises LookupError: if no language has one
    """
    return import_module(kits()[code_language()].code_module).HOSTING


def about(definition: Definition[Any]) -> About:
    """Return a definition's description of itself; the first sentence of its comment is the title."""
    found = authoring(definition.language).about(definition.document)
    comment = definition.comment.strip()
    return replace(found, title=title_of(comment), description=comment) if comment else found


def title_of(comment: str) -> str:
    """Return the first sentence of a comment, cut between words at `TITLE_CHARS_MAX`."""
    sentence = " ".join(_SENTENCE_END.split(comment.strip(), maxsplit=1)[0].split())
    if len(sentence) <= TITLE_CHARS_MAX:
        return sentence
    return f"{sentence[:TITLE_CHARS_MAX].rpartition(' ')[0] or sentence[:TITLE_CHARS_MAX]}…"


def give_name(definition: Definition[Any], name: str | None) -> Definition[Any]:
    """Give an unnamed definition this name, or else the title in its comment."""
    name = definition.name or name or title_of(definition.comment)
    try:
        token(name)
    except ValueError:
        return definition
    return definition if name == definition.name else replace(definition, name=name)


def parse_definition(source: str, file: str = "", named: str | None = None) -> Definition[Any] | list[Problem]:
    """Parse a definition's text in the named language, or in the language that it is recognised as.

    ``file`` is the name of its file, if it has one.
    """
    if named is not None and named not in kits():
        message = f"there is no language {named!r}"
        return [Problem("UNKNOWN_LANGUAGE", message, "definition.language", expected=" | ".join(kits()))]
    name = named or detect_nearly(source, file)
    return name if isinstance(name, list) else language(name).parse(source)


def plan_start(spoken: Language[Any], definition: Definition[Any], start: StartRun) -> Plan[Any] | list[Problem]:
    """Admit a start in its language. The options `STRICT` and `RULES` are handled here; languages do not see them, and
    plans have them."""
    strict: object = start.options.get(STRICT, False)
    others = {name: value for name, value in start.options.items() if name != STRICT}
    plan = spoken.admit(definition, replace(start, options=others))
    problems: list[Problem] = []
    if not isinstance(strict, bool):
        where = f"options.{STRICT}"
        problems = [Problem("start.strict", f"is {kind_of(strict)}", where, expected="true or false")]
    if isinstance(plan, list) or problems:
        return [*problems, *(plan if isinstance(plan, list) else [])]
    return replace(plan, options={**plan.options, RULES: spoken.rules, STRICT: strict})


def detect(source: str, file: str = "") -> str | list[Problem]:
    """Return the language of a definition's text; problems if no language or several recognise it.

    ``file`` is the name of its file, if it has one; its end decides if no language recognises the text.
    """
    return _detect_in(read_document(source), source, file)


def _detect_in(tree: Tree | list[Problem], source: str, file: str) -> str | list[Problem]:
    fields = tree.value if isinstance(tree, Tree) and isinstance(tree.value, dict) else None
    found = [name for name, kit in {**every_kit(), **kits()}.items() if kit.recognises(fields, source)]
    if len(found) == 1:
        return found[0]
    if not found:
        found = [name for name, kit in kits().items() if kit.suffixes and file.endswith(kit.suffixes)]
        if len(found) == 1:
            return found[0]
    known = "; ".join(f"{name}: {kit.looks_like}" for name, kit in kits().items())
    if found:
        message = f"{_SEVERAL} {', '.join(found)}; say which"
        return [Problem("UNKNOWN_LANGUAGE", message, "definition.language", expected=known)]
    if not isinstance(tree, Tree):
        # It cannot be read at all: where it breaks off helps more than a list of languages.
        return tree
    message = f"no language recognises this text{_describe_read(tree.value)}"
    return [Problem("UNKNOWN_LANGUAGE", message, "definition.language", expected=known)]


def detect_nearly(source: str, file: str = "") -> str | list[Problem]:
    """Return the language as `detect` does; if no language recognises the text, return the most similar one.

    So a document with a misspelled field gets the problems of its language.
    """
    # Reading a large text takes seconds.
    tree = read_document(source)
    found = _detect_in(tree, source, file)
    if isinstance(found, str):
        return found
    several = [one.message for one in found if one.code == "UNKNOWN_LANGUAGE" and one.message.startswith(_SEVERAL)]
    return found if several else _closest(tree, source) or found


def _closest(tree: Tree | list[Problem], source: str) -> str | None:
    """Return the language that a text is most similar to, by its top-level fields or its content; None if none is."""
    if isinstance(tree, Tree) and isinstance(tree.value, dict) and tree.value:
        names = list(tree.value)[:FIELDS_LISTED_MAX]
        nearness = {name: _nearness(kit.fields, names) for name, kit in kits().items()}
        best, *others = sorted(nearness, key=lambda name: -nearness[name])
        close = nearness[best] >= NEARNESS_MIN and all(nearness[other] < nearness[best] for other in others)
        return best if close else None
    alike = [name for name, kit in kits().items() if kit.resembles(source)]
    return alike[0] if len(alike) == 1 else None


def _nearness(fields: Sequence[str], names: Sequence[str]) -> float:
    """Return how near some names are to the fields of a language: 1 for an equal name, less for a similar one."""
    others = [name for name in names if name not in fields]
    nearest = {field: find_misspelled(field, others) for field in fields if field not in names}
    near = sum(SequenceMatcher(None, field, meant).ratio() for field, meant in nearest.items() if meant)
    return near + len(fields) - len(nearest)


def _describe_read(value: JSON) -> str:
    """Return a clause about the value that was read in place of a definition."""
    match value:
        case None:
            return ": it is empty"
        case dict() if value:
            shown = ", ".join(list(value)[:FIELDS_LISTED_MAX])
            return f", which has {shown}" + (" …" if len(value) > FIELDS_LISTED_MAX else "")
        case dict():
            return ": it is an empty object"
        case _:
            return f": it is {kind_of(value)}"
