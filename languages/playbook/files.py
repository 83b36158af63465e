"""Files that a playbook's prompts name: what may travel with a start, as far as that can be known before it runs."""

import re
from collections.abc import Iterator, Mapping

from callboard.languages.playbook.directives import scheme_of
from callboard.languages.playbook.document import Playbook
from callboard.languages.playbook.names import text_of
from callboard.languages.playbook.patterns import PLACEHOLDER
from callboard.languages.playbook.prompts import is_outside
from callboard.lib.json_types import JSON

_GLOB = re.compile(r"([*?\[])")
_MANY = re.compile(r"\*{2,}")


def prompt_files(playbook: Playbook, given: JSON) -> list[str]:
    """Return the paths in ``@prompt(file:…)``, as patterns of `glob`: a value that is not known yet is an asterisk."""
    known = {one.name: one.default for one in playbook.inputs if not one.required}
    known |= {name: text_of(value) for name, value in (given if isinstance(given, dict) else {}).items()}
    paths = (reference.partition(":")[2].strip() for reference in _references(playbook))
    patterns = dict.fromkeys(_pattern(path, known) for path in paths)
    return [pattern for pattern in patterns if pattern and not is_outside(pattern)]


def _references(playbook: Playbook) -> Iterator[str]:
    for step in playbook.steps:
        for one in (step, *(inner for branch in step.branches for inner in branch.steps)):
            if one.prompt_ref is not None and scheme_of(one.prompt_ref.prompt_id) == "file":
                yield one.prompt_ref.prompt_id


def _pattern(path: str, known: Mapping[str, str]) -> str:
    pieces: list[str] = []
    at = 0
    for match in PLACEHOLDER.finditer(path):
        value = known.get(match[1])
        pieces += [_GLOB.sub(r"[\1]", path[at : match.start()]), "*" if value is None else _GLOB.sub(r"[\1]", value)]
        at = match.end()
    return _MANY.sub("*", "".join([*pieces, _GLOB.sub(r"[\1]", path[at:])]))
