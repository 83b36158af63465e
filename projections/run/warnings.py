"""The warnings of a run, from its admission, its nodes and its child runs, without duplicates."""

from collections.abc import Iterable

import msgspec

from callboard.bus.events import ChildEnd, NodeWarning, Payload, Problem, RunAccepted, Warned

WARNINGS_MAX = 50
"""The maximum number of different warnings of a run. Further ones are only counted."""

MORE = "warnings.more"


class WarnedFold:
    """Folds a run's warnings. ``view`` returns the warnings for its ``run.end``."""

    def __init__(self) -> None:
        self._warned: list[Warned] = []
        self._more = 0

    def apply(self, path: str, payload: Payload, child: str = "") -> None:
        """Apply an event's payload. ``path`` is that of its node, and ``child`` the run that a ``child.end`` names."""
        match payload:
            case RunAccepted():
                self.add_admission(payload.warnings)
            case NodeWarning():
                self.add_warning(path, payload.code, payload.reason)
            case ChildEnd():
                self.add_child_warnings(path, child, payload.warnings)
            case _:
                pass

    def add_admission(self, warnings: Iterable[Problem]) -> None:
        """Add the warnings of an admission. Nodes repeat those about them when they run, so they count 0 times here."""
        for problem in warnings:
            self._add(Warned(problem.code, problem.message, times=0, where=problem.where))

    def add_warning(self, path: str, code: str, reason: str) -> None:
        """Add a warning of a node."""
        self._add(Warned(code, reason, path))

    def add_child_warnings(self, path: str, child: str, warnings: Iterable[Warned]) -> None:
        """Add the warnings in the end of a node's child run."""
        for warned in warnings:
            self._add(msgspec.structs.replace(warned, path=path, run=warned.run or child))

    def view(self) -> list[Warned]:
        told = [msgspec.structs.replace(one, times=max(1, one.times)) for one in self._warned]
        return [*told, Warned(MORE, f"and {self._more} more")] if self._more else told

    def _add(self, warned: Warned) -> None:
        found = next((place for place, one in enumerate(self._warned) if _alike(one, warned)), None)
        if found is not None:
            known = self._warned[found]
            times = known.times + warned.times
            self._warned[found] = msgspec.structs.replace(known, path=known.path or warned.path, times=times)
        elif len(self._warned) < WARNINGS_MAX:
            self._warned.append(warned)
        else:
            self._more += 1


def _alike(known: Warned, warned: Warned) -> bool:
    """Return whether a warning repeats a known one. A node may repeat a warning that admission gave for one place."""
    same = (known.code, known.reason, known.run) == (warned.code, warned.reason, warned.run)
    return same and (known.where == warned.where or not warned.where)


def codes(warned: Iterable[Warned]) -> list[str]:
    """Return the codes of warnings without duplicates."""
    return list(dict.fromkeys(one.code for one in warned))
