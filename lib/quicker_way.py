"""The quicker of two ways to do something, found out by the times that both take."""

TRY_EVERY = 64
"""How often the slower way is tried again, because disks and loads change."""


class QuickerWay:
    """Chooses between two ways, which are called ``False`` and ``True``."""

    def __init__(self) -> None:
        self._took = [0.0, 0.0]
        self._choices = 0

    def choose(self) -> bool:
        """Return the way to use now."""
        self._choices += 1
        quicker = self._took[True] < self._took[False]
        return not quicker if self._choices % TRY_EVERY == 0 else quicker

    def note(self, way: bool, seconds: float) -> None:
        """Note how long a way has taken. A single long time counts little, because anything can have delayed it."""
        took = self._took[way]
        if not took:
            self._took[way] = seconds
        elif seconds < took:
            self._took[way] = (took + seconds) / 2
        else:
            self._took[way] += (min(seconds, 2 * took) - took) / 8
