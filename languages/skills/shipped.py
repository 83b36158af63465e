"""The skills that come with Callboard: a data file of this package for each, read on demand.

Their tools are Python functions, which this package does not import. A run records the parts of a skill that it uses.
"""

import re
from functools import cache
from importlib.resources import files

from callboard.languages.problems import Tree
from callboard.languages.skills.skill import Skill
from callboard.languages.yaml12 import read_yaml

PREFIX = "shipped:"
"""The prefix of the id of a shipped skill in the recorded environment of a worker; ids in starts cannot contain it."""

_FOLDER = files("callboard.languages.skills") / "shipped_skills"
_SUFFIX = ".yaml"
_FUNCTION = re.compile(r"^ +python: (\S+)$", re.MULTILINE)


@cache
def shipped_ids() -> tuple[str, ...]:
    """Return the ids of all skills that are shipped, in order."""
    names = [entry.name for entry in _FOLDER.iterdir()]
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


@cache
def shipped_functions() -> tuple[str, ...]:
    """Return the Python functions of all shipped skills.

    Each worker needs them before its first run. A pattern finds them in milliseconds; YAML would take 0.3 s.
    """
    return tuple(found for skill_id in shipped_ids() for found in _FUNCTION.findall(_text_of(skill_id)))


def _text_of(skill_id: str) -> str:
    return (_FOLDER / f"{skill_id}{_SUFFIX}").read_text(encoding="utf-8")


@cache
def shipped_skill(skill_id: str) -> Skill:
    """Read a shipped skill.

    :raises KeyError: if no shipped skill has that id
    """
    if skill_id not in shipped_ids():
        raise KeyError(skill_id)
    tree = read_yaml(_text_of(skill_id))
    assert isinstance(tree, Tree), tree
    return Skill.model_validate(tree.value)
