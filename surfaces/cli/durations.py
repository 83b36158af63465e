"""Durations at the command line: ``90s``, ``10m``, ``1h30m``."""

import click


class Duration(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - it takes none in all versions
    """A duration, as seconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        import re

        from callboard.lib.durations import DURATION, seconds_of

        if isinstance(value, float):
            return value
        if not re.fullmatch(DURATION, str(value)):
            self.fail(f"{value!r} is no duration, such as 90s, 10m or 1h30m", param, ctx)
        return seconds_of(str(value))


class Since(click.ParamType):  # pyright: ignore[reportMissingTypeArgument] - it takes none in all versions
    """An instant: so long ago, or ISO 8601, in UTC if it names no offset."""

    name = "when"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        import datetime as dt
        import re

        from callboard.lib.durations import DURATION, seconds_of

        if isinstance(value, dt.datetime):
            return value
        try:
            if re.fullmatch(DURATION, str(value)):
                return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds_of(str(value)))
            at = dt.datetime.fromisoformat(str(value))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is no duration, such as 90s, 10m or 2h, and no instant", param, ctx)
        return at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC)
