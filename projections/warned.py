"""The warnings of a run: what its admission, its nodes and its child runs had to say, like ones once."""

from collections.abc import Iterable

import msgspec

from callboard.bus.events import ChildEnd, NodeWarning, Payload, Problem, RunAccepted, Warned

WARNINGS_MAX = 50
"""Different warnings that are told of a run; what there are beyond that is counted."""

MORE = "warnings.more"


class WarnedFold:
    """Folds a run's warnings; ``view`` is what its ``run.end`` says of them."""

    def __init__(self) -> None:
        self._warned: list[Warned] = []
        self._more = 0

    def apply(self, path: str, payload: Payload, child: str = "") -> None:
        """Take an event's payload; ``path`` is its node's, ``child`` the run that a ``child.end`` is about."""
        match payload:
            case RunAccepted():
                self.admitted(payload.warnings)
            case NodeWarning():
                self.noted(path, payload.code, payload.reason)
            case ChildEnd():
                self.ended(path, child, payload.warnings)
            case _:
                pass

    def admitted(self, warnings: Iterable[Problem]) -> None:
        """Take what an admission warned of; the nodes that it is about say so, once it comes to that."""
        for problem in warnings:
            self._add(Warned(problem.code, problem.message, times=0, where=problem.where))

    def noted(self, path: str, code: str, reason: str) -> None:
        """Take what a node has warned of."""
        self._add(Warned(code, reason, path))

    def ended(self, path: str, child: str, warnings: Iterable[Warned]) -> None:
        """Take what a child run of a node has told in its end."""
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
    """Whether a warning is one that is known: what admission warned of at one place, nodes may say in their turn."""
    same = (known.code, known.reason, known.run) == (warned.code, warned.reason, warned.run)
    return same and (known.where == warned.where or not warned.where)


def codes(warned: Iterable[Warned]) -> list[str]:
    """The codes of warnings, each once."""
    return list(dict.fromkeys(one.code for one in warned))
