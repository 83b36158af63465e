"""The settings of retention: the table ``retention`` of the configuration, rules by name that select runs to remove."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from callboard.lib.durations import seconds_of
from callboard.runtime.settings.rule_settings import RULES_MAX, Duration, Question, RuleName, Several
from callboard.runtime.settings.tables import DEFERRED, Reading, Table

AGE_MIN_S = 1.0
"""Shortest age: a run that has just ended is likely to be read."""

Status = Literal["completed", "failed", "cancelled", "expired"]
Word = Annotated[str, Field(pattern=r"\S")]


class RetentionRule(BaseModel):
    """Selects runs to remove: those older than ``age``, with one of the statuses and definitions, that match ``where``.

    Empty conditions match all runs. The age counts from a run's end. Runs are written to ``archive_to`` first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    age: Duration
    status: Annotated[tuple[Status, ...], Several] = ()
    definition: Annotated[tuple[Word, ...], Several] = ()
    where: Question = ""
    tenant: Annotated[tuple[Word, ...], Several] = ()
    archive_to: Path | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.age_s < AGE_MIN_S:
            raise ValueError(f"age must be at least {AGE_MIN_S:g} s")
        if self.archive_to is not None and not self.archive_to.is_absolute():
            raise ValueError("archive_to must be an absolute path")
        return self

    @property
    def age_s(self) -> float:
        """How long ago a run must have ended, in seconds."""
        return seconds_of(self.age)

    def __str__(self) -> str:
        what = [", ".join(self.status), ", ".join(self.definition), self.where]
        kept = f" to {self.archive_to}" if self.archive_to is not None else ""
        return f"{' and '.join(['ended>' + self.age, *filter(None, what)])}{kept}"


_SHAPE = TypeAdapter(Annotated[dict[RuleName, RetentionRule], Field(max_length=RULES_MAX)], config=DEFERRED)


def _read(given: Any, reading: Reading) -> dict[str, RetentionRule] | None:
    return reading.validate(_SHAPE, given)


RETENTION = Table(
    "a table of rules by name, each with `age`, optionally `status`, `definition`, `where`, `tenant` and `archive_to`",
    _read,
)
