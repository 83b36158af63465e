"""The names that the texts of a playbook can refer to: inputs and captured outputs, all with texts as values."""

import json
from collections.abc import Mapping

from callboard.lib.json_types import JSON


class Names:
    """Inputs and named outputs; an input takes precedence over an output of the same name."""

    def __init__(self, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        self.inputs = dict(inputs)
        self.outputs = dict(outputs)

    def find(self, name: str) -> str | None:
        """Return the value of a name; None if it is unknown."""
        return self.inputs.get(name, self.outputs.get(name))

    def override(self, variables: Mapping[str, JSON]) -> None:
        """Set the values of names: of the input of that name if there is one, else of the output."""
        for name, value in variables.items():
            where = self.inputs if name in self.inputs else self.outputs
            where[name] = text_of(value)


def text_of(value: JSON) -> str:
    """Return a value as text: a string itself, anything else as compact JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
