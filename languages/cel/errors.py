"""The errors of expressions.

* `ExpressionError`

  * `CelSyntaxError`: the text is not CEL. Raised by the compiler; the author must correct it.
  * `EvaluationError`: the expression has no value for these bindings.
  * `Unrepresentable`: its value cannot be JSON data.
"""

from collections.abc import Callable

SHOWN_MAX = 80
"""The greatest number of characters of a value that a message shows."""


class ExpressionError(Exception):
    """An expression is invalid or has no value.

    If a message is costly to make it is passed as a function, because most errors inside ``||`` and ``exists`` are
    never shown.
    """

    def __init__(self, message: str | Callable[[], str]) -> None:
        super().__init__()
        self._message = message

    @property
    def message(self) -> str:
        """The message, which is made when it is first read."""
        if not isinstance(self._message, str):
            self._message = self._message()
        return self._message

    def __str__(self) -> str:
        return self.message


class CelSyntaxError(ExpressionError):
    """A text is not an expression. ``line`` and ``column`` (1-based, in code points) are the place of the error."""

    def __init__(self, message: str, line: int, column: int) -> None:
        super().__init__(message)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return f"{self.message} (line {self.line}, column {self.column})"


class EvaluationError(ExpressionError):
    """An expression has no value: types do not match, a member is absent, or a number is out of range."""


class Unrepresentable(ExpressionError):
    """An expression has a value that JSON cannot hold without loss."""


def show_value(value: object) -> str:
    """Return a value as text for a message: quoted, and cut at `SHOWN_MAX` characters."""
    text = repr(value[: SHOWN_MAX + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"
