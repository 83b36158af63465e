"""Expressions: evaluations per second of our CEL and of the CEL team's C++ engine on the same machine and minute."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from cel_expr_python import cel

from callboard.languages.cel.program import compile

ROUNDS = 5
BUDGET_S = 0.3
"""How long each measurement of a round takes, about."""

ORACLE_ITEMS_MAX = 5_000
"""The oracle does not measure longer lists: its time grows with the square, and it stops at 9,999 iterations."""

LENGTHS = (1_000, 10_000, 100_000)


class _NoClock:
    """A clock for expressions that read none."""

    def now(self) -> datetime:
        return datetime.fromtimestamp(0, UTC)

    wall_time = now


CLOCK = _NoClock()

Bindings = dict[str, dict[str, Any]]

CASES: dict[str, tuple[str, Callable[[], Bindings]]] = {
    "predicate": ("vars.x > 2.0 && vars.k == 'abc'", lambda: {"vars": {"x": 3.0, "k": "abc"}}),
    "text": ("'/granules/' + vars.k + '/' + string(vars.x)", lambda: {"vars": {"x": 3.0, "k": "abc"}}),
    "filter and map, 20 items": (
        "vars.items.filter(i, i.n > 5.0).map(i, {'id': i.id, 'n': i.n * 2.0})",
        lambda: {"vars": {"items": [{"id": f"item-{n}", "n": float(n)} for n in range(20)]}},
    ),
}


def _rate(once: Callable[[], object]) -> float:
    """Return how often something can be done in a second."""
    count, took = 1, 0.0
    while took < BUDGET_S:
        began = time.perf_counter()
        for _ in range(count):
            once()
        took = time.perf_counter() - began
        count *= 2
    return count / 2 / took


def _best(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Measure both in turns, so that other load on the machine affects both."""
    rounds = [(_rate(ours), _rate(theirs)) for _ in range(ROUNDS)]
    return max(own for own, _ in rounds), max(their for _, their in rounds)


def _oracle(source: str) -> Any:
    return cel.NewEnv(variables={"vars": cel.Type.DYN}).compile(source, disable_check=True)


def _evaluations(name: str) -> tuple[str, float, float]:
    """Evaluate with new bindings each time, as in a run."""
    source, bindings = CASES[name]
    ours, theirs = compile(source), _oracle(source)
    return name, *_best(lambda: ours.evaluate(bindings(), CLOCK), lambda: theirs.eval(data=bindings()).plain_value())


def _compilations() -> tuple[str, float, float]:
    source, _ = CASES["predicate"]
    environment = cel.NewEnv(variables={"vars": cel.Type.DYN})
    return "compile", *_best(
        lambda: compile.__wrapped__(source), lambda: environment.compile(source, disable_check=True)
    )


def _elements(length: int) -> tuple[str, float, float | None]:
    """Return the elements per second of a ``map``, which are equal for all lengths if it is linear."""
    source = "vars.items.map(i, i.n * 2.0 + 1.0)"
    bindings: Bindings = {"vars": {"items": [{"n": float(n)} for n in range(length)]}}
    ours, theirs = compile(source), _oracle(source)
    name = f"map, elements of {length:,}"
    if length > ORACLE_ITEMS_MAX:
        return name, length * max(_rate(lambda: ours.evaluate(bindings, CLOCK)) for _ in range(ROUNDS)), None
    own, their = _best(lambda: ours.evaluate(bindings, CLOCK), lambda: theirs.eval(data=bindings).plain_value())
    return name, length * own, length * their


def report() -> None:
    print(f"Expressions per second, bindings new for each evaluation; best of {ROUNDS}")
    print(f"{'':<26} {'cel-cpp':>12} {'callboard':>12} {'ratio':>6}")
    for name, own, their in (*map(_evaluations, CASES), _compilations(), *map(_elements, LENGTHS)):
        told = f"{their:>12,.0f} {own:>12,.0f} {own / their:>6.2f}" if their else f"{'—':>12} {own:>12,.0f} {'—':>6}"
        print(f"{name:<26} {told}")


if __name__ == "__main__":
    report()
