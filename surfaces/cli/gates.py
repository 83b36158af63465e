"""Gates: conditions over the figures of a report that decide the exit code of ``callboard eval``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from callboard.features.evaluation.report import ExperimentReport


class Gate:
    """The conditions of one command."""

    def __init__(self, fail_on: Sequence[str], fail_under: Sequence[str]) -> None:
        """:raises RequestRefused: if a condition is not an expression
        :raises click.BadParameter: if a bound is not a number"""
        from callboard.surfaces.cli.cel import compile_expression

        self._conditions = [(text, compile_expression(text)) for text in fail_on]
        self._bounds: dict[str, float] = {}
        for text in fail_under:
            name, _, number = text.partition("=")
            try:
                self._bounds[name] = float(number)
            except ValueError:
                message = f"{text!r} is not of the form SCORER=NUMBER"
                raise click.BadParameter(message, param_hint="--fail-under") from None

    def check_scorers(self, names: Sequence[str]) -> None:
        """:raises click.BadParameter: if a bound is for a scorer that is not given"""
        if unknown := [name for name in self._bounds if name not in names]:
            message = f"{', '.join(unknown)} is not a scorer of this command; add --score"
            raise click.BadParameter(message, param_hint="--fail-under")

    def failures(self, report: "ExperimentReport") -> list[str]:
        """Return the conditions for which the report fails.

        :raises click.BadParameter: if a condition has no value
        """
        from callboard.features.evaluation.report import figures_of
        from callboard.languages.cel.errors import EvaluationError, Unrepresentable
        from callboard.surfaces.cli.cel import Present

        figures = figures_of(report)
        found: list[str] = []
        for text, program in self._conditions:
            try:
                value = program.evaluate(figures, Present())
            except (EvaluationError, Unrepresentable) as error:
                message = f"{text}: {error}; the figures are {', '.join(figures)}"
                raise click.BadParameter(message, param_hint="--fail-on") from error
            if not isinstance(value, bool):
                raise click.BadParameter(f"{text} is not a condition", param_hint="--fail-on")
            if value:
                found.append(text)
        for name, bound in self._bounds.items():
            for candidate, summary in report.candidates.items():
                mean = summary.scores[name].after
                if mean is None or mean.mean < bound:
                    shown = "none" if mean is None else f"{mean.mean:g}"
                    found.append(f"{name} of {candidate} is {shown}, below {bound:g}")
        return found
