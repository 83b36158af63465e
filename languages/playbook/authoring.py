"""What the playbook language offers to those who write in it."""

from typing import Any

from callboard.languages.authoring import About, Authoring
from callboard.languages.playbook.convert import to_json, to_markdown
from callboard.languages.playbook.descriptions import DESCRIPTIONS
from callboard.languages.playbook.document import Playbook
from callboard.languages.playbook.files import prompt_files
from callboard.languages.playbook.options import Options
from callboard.languages.playbook.outline import outline
from callboard.languages.playbook.report import report


def _about(playbook: Playbook) -> About:
    return About(playbook.title, playbook.description, {one.name: _describe_input(one) for one in playbook.inputs})


def _describe_input(one: Any) -> dict[str, Any]:
    told = one.model_dump(mode="json", exclude={"name", "line"}, exclude_defaults=True)
    return {**told, "type": one.type, "required": one.required}


AUTHORING = Authoring(
    outline=outline,
    options=Options,
    about=_about,
    beside=prompt_files,
    of_start=frozenset({"UNKNOWN_CONNECTION"}),
    report=report,
    forms={"json": to_json},
    from_forms={"json": to_markdown},
    schema=Playbook.model_json_schema,
    descriptions=DESCRIPTIONS,
)
