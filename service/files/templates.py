"""Templates: definitions of the languages with the files that they need, to begin with or to try at once.

A template that needs nothing but its script can be started as an example, with the message that `example_start`
returns.
"""

import re
import tomllib
from collections.abc import Iterator
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from typing import Any, NamedTuple

from callboard.languages.kit import kits
from callboard.service.files.start_messages import prepare
from callboard.service.files.start_request import StartRequest

ABOUT = "template.toml"
"""The file that describes a template; it is not copied."""

_PLAIN = re.compile(r"(?!(?:true|false|null|yes|no|on|off)$)[A-Za-z][A-Za-z0-9_-]*", re.IGNORECASE)
"""A name that YAML reads as a text without quotes."""


class ProjectTemplate(NamedTuple):
    """A template. ``definition``, ``script``, ``input`` and ``answers`` (to its questions) are names of its files.

    ``usual`` marks the template to use if several languages have one of this name. ``script`` is None if no model is
    used. ``name_line`` is the line of the definition to replace by ``name_becomes``; empty if definitions have no name.
    ``commands`` are more commands to run, each with its description; ``{definition}`` in them is replaced by the file.
    ``is_drawn`` says that `callboard diagram` can draw the definition.
    """

    language: str
    name: str
    about: str
    definition: str
    script: str | None
    input: str | None
    usual: bool
    name_line: str
    name_becomes: str
    answers: str | None
    commands: list[tuple[str, str]]
    is_drawn: bool
    folder: Traversable

    def content(self, called: str) -> dict[str, str]:
        """Return the template's files by name; the definition gets the name ``called``."""
        texts = {one.name: one.read_text(encoding="utf-8") for one in self._files()}
        written = called if _PLAIN.fullmatch(called) else f'"{called}"'
        if self.name_line:
            line = self.name_becomes.replace("{name}", written)
            texts[self.definition] = texts[self.definition].replace(self.name_line, line, 1)
        return texts

    def _files(self) -> list[Traversable]:
        found = [one for one in self.folder.iterdir() if one.is_file() and one.name != ABOUT]
        # The definition first, because readers look at it first.
        return sorted(found, key=lambda one: (one.name != self.definition, one.name))


def templates() -> Iterator[ProjectTemplate]:
    """Yield the templates of all languages, in the order of their names; ``minimal`` is the first of its language."""
    for kit in kits().values():
        place = files(kit.templates).joinpath("templates") if kit.templates else None
        for folder in sorted(
            _template_folders(place) if place else (), key=lambda one: (one.name != "minimal", one.name)
        ):
            about = tomllib.loads(folder.joinpath(ABOUT).read_text(encoding="utf-8"))
            yield ProjectTemplate(
                language=kit.name,
                name=folder.name,
                about=about["about"],
                definition=about["definition"],
                script=about.get("script"),
                input=about.get("input"),
                usual=about.get("usual", False),
                name_line=about.get("name_line", ""),
                name_becomes=about.get("name_becomes", ""),
                answers=about.get("answers"),
                commands=[(one["about"], one["command"]) for one in about.get("commands", ())],
                is_drawn=not kit.code_module,
                folder=folder,
            )


def _template_folders(place: Traversable) -> Iterator[Traversable]:
    # Skip __pycache__ of templates with Python files.
    return (one for one in place.iterdir() if one.is_dir() and not one.name.startswith(("_", ".")))


def examples() -> Iterator[ProjectTemplate]:
    """Yield the templates that a worker can perform without a model, a person's files or code of their own."""
    for one in templates():
        if one.is_drawn and one.script is not None and not any(name.endswith(".py") for name in one.content(one.name)):
            yield one


def example_start(template: ProjectTemplate) -> dict[str, Any]:
    """Return the start message of an example, with its script, its input and the files that its definition names.

    :raises CallboardError: if the files of the template cannot be used
    """
    with as_file(template.folder) as folder:
        request = StartRequest(
            file=str(folder / template.definition),
            input_text=(folder / template.input).read_text(encoding="utf-8") if template.input else None,
            script=str(folder / template.script) if template.script else None,
            project_skills=False,
        )
        return prepare(request).message
