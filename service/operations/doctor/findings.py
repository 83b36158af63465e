"""Findings: what a check of a deployment has found."""

from typing import Literal

from msgspec import Struct

Level = Literal["ok", "warning", "error"]


class Finding(Struct, frozen=True, omit_defaults=True):
    """The outcome of one check. ``check`` is its stable name, ``remedy`` what to do unless it is ``ok``."""

    area: str
    check: str
    level: Level
    message: str
    remedy: str = ""


def ok(area: str, check: str, message: str) -> Finding:
    return Finding(area, check, "ok", message)
