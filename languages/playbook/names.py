"""The names that a playbook's texts may refer to: inputs and captured outputs, all of them texts."""

import json
from collections.abc import Mapping

from callboard.lib.json_types import JSON


class Names:
    """Inputs, which win, and named outputs."""

    def __init__(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)

    def find(self, name: str) -> str | None:
        """Return what a name represents; None if nothing has it."""
        return self.inputs.get(name, self.outputs.get(name))

    def override(self, variables: Mapping[str, JSON]) -> None:
        """Give names other values: an input if there is one of that name, else an output."""
        for name, value in variables.items():
            where = self.inputs if name in self.inputs else self.outputs
            where[name] = text_of(value)


def text_of(value: JSON) -> str:
    """Return a value as the text that it acts as: a text itself, anything else its JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
