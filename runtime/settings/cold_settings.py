"""The settings of cold storage: the table ``cold`` of the configuration, which selects the ended runs to move."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from callboard.lib.durations import seconds_of
from callboard.runtime.settings.rule_settings import Duration, Several
from callboard.runtime.settings.tables import Reading, Table

EVERY_MIN_S = 1.0

Word = Annotated[str, Field(min_length=1)]


class ColdRule(BaseModel):
    """Selects ended runs to move: those that ended ``after`` ago, and all but the ``keep`` newest.

    With both, a run is moved if one of them selects it. ``definition`` and ``tenant`` restrict the rule. ``folder`` is
    where the segments are; None: ``cold`` in the data directory.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    after: Annotated[Duration | None, Field(description="Time after its end at which a run is moved.")] = None
    keep: Annotated[
        Annotated[int, Field(ge=0)] | None, Field(description="Number of the newest ended runs that are not moved.")
    ] = None
    definition: Annotated[tuple[Word, ...], Several] = ()
    tenant: Annotated[tuple[Word, ...], Several] = ()
    folder: Annotated[
        Path | None, Field(description="Folder of the segments; default: `cold` in the data directory.")
    ] = None
    every: Annotated[Duration, Field(description="Time between two checks.")] = "10m"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.after is None and self.keep is None:
            raise ValueError("after or keep is required")
        if self.every_s < EVERY_MIN_S:
            raise ValueError(f"every must be at least {EVERY_MIN_S:g} s")
        if self.folder is not None and not self.folder.is_absolute():
            raise ValueError("folder must be an absolute path")
        return self

    @property
    def after_s(self) -> float | None:
        """How long ago a run must have ended, in seconds."""
        return None if self.after is None else seconds_of(self.after)

    @property
    def every_s(self) -> float:
        """The time between two rounds, in seconds."""
        return seconds_of(self.every)

    def __str__(self) -> str:
        tests = [f"after={self.after}" if self.after else "", "" if self.keep is None else f"keep={self.keep}"]
        return ", ".join([*filter(None, tests), *self.definition])


_SHAPE = TypeAdapter(ColdRule)


def _read(given: Any, reading: Reading) -> ColdRule | None:
    return reading.validate(_SHAPE, given)


COLD = Table("a table with `after` or `keep`, optionally `definition`, `tenant`, `folder` and `every`", _read)
