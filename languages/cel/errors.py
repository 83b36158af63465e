"""What can be wrong with an expression.

* `ExpressionError`

  * `CelSyntaxError`: it is not a CEL; found when it is compiled, the author must mend it.
  * `EvaluationError`: it cannot be evaluated against these bindings.
  * `Unrepresentable`: its value has no form as data.
"""

from collections.abc import Callable

SHOWN_MAX = 80
"""How many characters of a value a message shows at most."""


class ExpressionError(Exception):
    """Something is wrong with an expression.

    A message that takes work to find is given as a function: most errors inside of ``||`` and ``exists`` no one reads.
    """

    def __init__(self, message: str | Callable[[], str]) -> None:
        super().__init__()
        self._message = message

    @property
    def message(self) -> str:
        """What is wrong, in a sentence."""
        if not isinstance(self._message, str):
            self._message = self._message()
        return self._message

    def __str__(self) -> str:
        return self.message


class CelSyntaxError(ExpressionError):
    """A text is not an expression. ``line`` and ``column`` (1-based, in code points) say where it stops being one."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return f"{self.message} (line {self.line}, column {self.column})"


class EvaluationError(ExpressionError):
    """An expression has no value: types that do not go together, something absent, a number out of range."""


class Unrepresentable(ExpressionError):
    """An expression has a value, but none that JSON can hold without loss."""


def show_value(value: object) -> str:
    """Return a value as a message shows it: quoted, and shortened if it is long."""
    text = repr(value[: SHOWN_MAX + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
