"""The findings of checks of a deployment."""

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "warning", "error"]


class Finding(Struct, frozen=True, omit_defaults=True):
    """The outcome of one check. ``check`` is its stable name; ``remedy`` says what to do unless the level is ``ok``."""

    area: str
    check: str
    level: Level
    message: str
    remedy: str = ""


def ok(area: str, check: str, message: str) -> Finding:
    return Finding(area, check, "ok", message)
