"""The settings of cold storage: the table ``cold`` of the configuration, which selects the ended runs to move."""

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from callboard.lib.durations import seconds_of
from callboard.lib.installed import is_installed
from callboard.runtime.settings.rule_settings import Duration, Several
from callboard.runtime.settings.tables import Reading, Table

EVERY_MIN_S = 1.0

Word = Annotated[str, Field(min_length=1)]


class ColdRule(BaseModel):
    """Selects ended runs to move: those that ended ``after`` ago, all but the ``keep`` newest, or the oldest while the
    stream has more than ``keep_bytes``.

    With several, a run is moved if one of them selects it. ``definition`` and ``tenant`` restrict the rule. The
    segments are in ``folder``, or in the object store ``to``; without both in ``cold`` in the data directory.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    after: Annotated[Duration | None, Field(description="Time after its end at which a run is moved.")] = None
    keep: Annotated[
        Annotated[int, Field(ge=0)] | None, Field(description="Number of the newest ended runs that are not moved.")
    ] = None
    keep_bytes: Annotated[
        Annotated[int, Field(ge=0)] | None,
        Field(description="Size of the stream in bytes from which on the oldest ended runs are moved."),
    ] = None
    definition: Annotated[tuple[Word, ...], Several] = ()
    tenant: Annotated[tuple[Word, ...], Several] = ()
    folder: Annotated[
        Path | None, Field(description="Folder of the segments; default: `cold` in the data directory.")
    ] = None
    to: Annotated[
        Annotated[str, Field(pattern=r"^s3://[^\s/@?#]+(/[^\s?#]*)?$")] | None,
        Field(description="Object store of the segments, instead of a folder: `s3://bucket/prefix`."),
    ] = None
    endpoint: Annotated[
        Annotated[str, Field(pattern=r"^https?://[^\s/@]+/?$")] | None,
        Field(description="Address of the object store; default: that of the environment, or Amazon's."),
    ] = None
    every: Annotated[Duration, Field(description="Time between two checks.")] = "10m"

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.after is None and self.keep is None and self.keep_bytes is None:
            raise ValueError("after, keep or keep_bytes is required")
        if self.to is not None and self.folder is not None:
            raise ValueError("folder and to exclude each other: the segments are in one place")
        if self.endpoint is not None and self.to is None:
            raise ValueError("endpoint is for an object store: set `to` as well")
        if self.to is not None and not is_installed("obstore"):
            raise ValueError("to needs the package obstore: install it with pip install 'callboard[s3]'")
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
        tests = {"after": self.after, "keep": self.keep, "keep_bytes": self.keep_bytes}
        terms = [f"{name}={value}" for name, value in tests.items() if value is not None]
        return ", ".join([*terms, *self.definition, *([f"to {self.to}"] if self.to is not None else [])])


_SHAPE = TypeAdapter(ColdRule)


def _read(given: Any, reading: Reading) -> ColdRule | None:
    return reading.validate(_SHAPE, given)


COLD = Table(
    "a table with `after`, `keep` or `keep_bytes`, optionally `definition`, `tenant`, `folder` or `to`, and `every`",
    _read,
)
