"""Planning: a start admitted in its language, and what is the same in all of them."""

from typing import Any

import msgspec
from msgspec.structs import replace

from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.language import STRICT, Definition, Language, Plan
from callboard.languages.problems import kind_of


def plan_start(spoken: Language[Any], definition: Definition[Any], start: StartRun) -> Plan[Any] | list[Problem]:
    """Admit a start in its language. ``options.strict`` is the same in all of them: none sees it, every plan has it."""
    strict: object = start.options.get(STRICT, False)
    others = {name: value for name, value in start.options.items() if name != STRICT}
    plan = spoken.admit(definition, msgspec.structs.replace(start, options=others))
    problems: list[Problem] = []
    if not isinstance(strict, bool):
        where = f"options.{STRICT}"
        problems = [Problem("start.strict", f"is {kind_of(strict)}", where, expected="true or false")]
    if isinstance(plan, list) or problems:
        return [*problems, *(plan if isinstance(plan, list) else [])]
    return replace(plan, options={**plan.options, STRICT: strict})
