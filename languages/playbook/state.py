"""The state document of the specification, from which a start can continue."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from callboard.bus.events import Problem
from callboard.languages.playbook.document import Playbook
from callboard.languages.playbook.findings import ELICITED
from callboard.languages.playbook.names import text_of

_HASH = re.compile(r"[0-9a-f]{64}")

PAUSED = "paused"
"""The status of an execution that is paused at a breakpoint, after a step."""


class SavedState(BaseModel):
    """A saved execution; members that other implementations add are ignored.

    ``step_outputs`` is by step number. ``next_step`` is an extension of Callboard: the index, from 0, of the step to
    continue at, for playbooks that repeat a number.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, defer_build=True)

    playbook_id: str | None = None
    system_prompt: str | None = None
    input_values: dict[str, Any] = Field(default_factory=dict[str, Any])
    step_outputs: dict[str, Any] = Field(default_factory=dict[str, Any])
    named_outputs: dict[str, Any] = Field(default_factory=dict[str, Any])
    breakpoints: dict[str, bool] = Field(default_factory=dict[str, bool])
    status: str | None = None
    paused_at_step: int | None = None
    next_step: int | None = None

    def outputs(self) -> dict[str, str]:
        """Return the output of each step by its number."""
        return {number: text_of(value) for number, value in self.step_outputs.items() if value is not None}

    def named_texts(self) -> dict[str, str]:
        """Return the named outputs."""
        return {name: text_of(value) for name, value in self.named_outputs.items() if value is not None}

    def place(self, playbook: Playbook) -> int:
        """Return the index of the step to continue at: after the one it paused at, unless that has no output yet.

        A step that is paused at a breakpoint has ended, even if its output was not saved.
        """
        if self.next_step is not None:
            return min(self.next_step, len(playbook.steps))
        done = [place for place, step in enumerate(playbook.steps) if str(step.number) in self.step_outputs]
        if self.paused_at_step is None:
            return done[-1] + 1 if done else 0
        at = [place for place, step in enumerate(playbook.steps) if step.number == self.paused_at_step]
        return at[-1] + 1 if at[-1] in done or self.status == PAUSED else at[0]

    def problems(self, playbook: Playbook) -> list[Problem]:
        """Return the members of the document that do not fit the playbook, as problems."""
        found: list[Problem] = []
        numbers = {step.number for step in playbook.steps}
        expected = f"one of {', '.join(map(str, sorted(numbers)))}"
        if self.paused_at_step is not None and self.paused_at_step not in numbers:
            message = f"unknown step {self.paused_at_step}"
            found.append(Problem("STATE", message, "state.paused_at_step", expected=expected))
        for field, keys in (("step_outputs", self.step_outputs), ("breakpoints", self.breakpoints)):
            found += [
                Problem("STATE", f"unknown step {key!r}", f"state.{field}.{key}", expected=expected)
                for key in keys
                if key not in map(str, numbers)
            ]
        if self.next_step is not None and self.next_step < 0:
            found.append(Problem("STATE", f"is {self.next_step}", "state.next_step", expected="a place from 0"))
        return found

    def stranger(self, hash: str) -> list[Problem]:
        """Object to a document of another playbook; ``hash`` is that of this definition.

        Ids of other implementations are not hashes, so they are not compared.
        """
        if self.playbook_id is None or self.playbook_id == hash or _HASH.fullmatch(self.playbook_id) is None:
            return []
        message = "the state was saved by an execution of another playbook, or of another version of this one"
        expected = f"{hash}, or no playbook_id, to continue with this playbook nevertheless"
        return [Problem("STATE", message, "state.playbook_id", expected=expected)]

    def response(self, number: int) -> str | None:
        """Return the response to the question of a step, if there was one."""
        found = self.named_outputs.get(f"{ELICITED}{number}")
        return None if found is None else text_of(found)
