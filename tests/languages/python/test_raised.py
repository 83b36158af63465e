"""A step that fails raises the exception of its function in the workflow, which is a `StepFailed` too."""

import asyncio
import sys
from decimal import Decimal
from types import ModuleType
from typing import Any, ClassVar

import pytest

from callboard import StepFailed, step, workflow
from callboard.bus.effects import Failure
from callboard.languages.python.raised import decode_error, encode_error, step_failed
from callboard.testing import Scenario

CONSTRUCTED = [0]


class Declined(Exception):
    """Its constructor takes other arguments than the exception has."""

    def __init__(self, cents: int, *, card: str) -> None:
        super().__init__(f"{cents} cents are too much for {card}")
        CONSTRUCTED[0] += 1
        self.cents = cents
        self.code = card


class Slotted(Exception):
    __slots__ = ("cents",)

    def __init__(self, cents: int) -> None:
        self.cents = cents


class Responded(Exception):
    response = "that of the class"

    def __init__(self) -> None:
        super().__init__("404")
        self.response = object()  # type: ignore[assignment]


class Registered(Exception):
    known: ClassVar[list[str]] = []

    def __init_subclass__(cls) -> None:
        Registered.known.append(cls.__name__)

    @property
    def code(self) -> int:
        return 7


def fail(kind: str) -> None:
    class Local(Exception):
        pass

    errors = {
        "declined": Declined(5, card="visa"),
        "slotted": Slotted(5),
        "responded": Responded(),
        "registered": Registered("no"),
        "local": Local("no"),
        "key": KeyError("order"),
        "file": FileNotFoundError(2, "No such file", "a.txt"),
        "decimal": ValueError(Decimal(5)),
        "group": ExceptionGroup("two", [ValueError("a")]),
    }
    raise errors[kind]


@step(retries=1, backoff=0)
async def charge(kind: str) -> None:
    fail(kind)


@step
def charge_on_a_thread(kind: str) -> None:
    fail(kind)


@step(process=True)
def charge_in_a_process(kind: str) -> None:
    fail(kind)


STEPS = {"loop": charge, "thread": charge_on_a_thread, "process": charge_in_a_process}


@workflow
async def buy(kind: str, way: str = "loop") -> list[Any]:
    try:
        await STEPS[way](kind)
    except Declined as error:
        own = error.original.code if isinstance(error, StepFailed) and isinstance(error.original, Declined) else None
        return ["Declined", error.cents, list(error.args), error.code, getattr(error, "type", ""), own]
    except Slotted as error:
        return ["Slotted", error.cents]
    except Responded as error:
        with pytest.raises(AttributeError, match="response of Responded was not recorded"):
            print(error.response)
        return ["Responded", str(error.args)]
    except Registered as error:
        return ["Registered", list(Registered.known), error.code]
    except KeyError as error:
        return ["KeyError", error.args[0]]
    except FileNotFoundError as error:
        return ["FileNotFoundError", error.errno, error.filename]
    except StepFailed as error:
        return ["StepFailed", error.type]
    return []


CAUGHT = {
    "declined": ["Declined", 5, ["5 cents are too much for visa"], "step.failed", "Declined", "visa"],
    "slotted": ["Slotted", 5],
    "responded": ["Responded", "('404',)"],
    "registered": ["Registered", [], "step.failed"],
    "local": ["StepFailed", "Local"],
    "key": ["KeyError", "order"],
    "file": ["FileNotFoundError", 2, "a.txt"],
    "decimal": ["StepFailed", "ValueError"],
    "group": ["StepFailed", "ExceptionGroup"],
}


@pytest.mark.parametrize("kind", CAUGHT)
def test_an_exception_of_a_step_is_caught_by_its_class_in_a_run_and_outside(kind: str, scenario: Scenario) -> None:
    scenario.start(buy, input={"kind": kind}).advance(minutes=5)
    assert scenario.result.output == CAUGHT[kind]
    scenario.crash_everywhere()
    assert asyncio.run(buy(kind)) == CAUGHT[kind]


@pytest.mark.parametrize("way", ["thread", "process"])
def test_steps_on_threads_and_in_processes_raise_their_exceptions(way: str, scenario: Scenario) -> None:
    scenario.start(buy, input={"kind": "declined", "way": way}).advance(minutes=5)
    code = "tool.failed" if way == "process" else "step.failed"
    assert scenario.result.output == ["Declined", 5, CAUGHT["declined"][2], code, "Declined", "visa"]


def test_no_constructor_is_called_and_no_module_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    record = encode_error(Declined(5, card="visa"))
    before = CONSTRUCTED[0]
    assert isinstance(step_failed(_make_failure(record)), Declined)
    assert CONSTRUCTED[0] == before
    for name in [name for name in sys.modules if name.startswith("wave")]:
        monkeypatch.delitem(sys.modules, name)
    unknown = step_failed(_make_failure({"type": "wave:Error", "args": ["no"], "attributes": {}}))
    assert type(unknown) is StepFailed
    assert "wave" not in sys.modules


def test_the_text_of_an_exception_does_not_depend_on_whether_its_class_is_known() -> None:
    failure = _make_failure(encode_error(Declined(5, card="visa")))
    known, unknown = step_failed(failure), StepFailed(failure)
    assert isinstance(known, Declined)
    for of in (str, repr, lambda one: (type(one).__module__, type(one).__qualname__, one.code, one.type)):
        assert of(known) == of(unknown)


def test_a_class_is_that_of_the_module_of_the_step() -> None:
    other = ModuleType(__name__)
    exec("class Declined(Exception): pass", other.__dict__)
    error = other.Declined("no")
    assert encode_error(error) is None
    record = encode_error(error, own=vars(other))
    assert isinstance(decode_error(record, own=vars(other)), other.Declined)


def test_an_exception_that_is_too_long_is_not_recorded() -> None:
    assert encode_error(ValueError("x" * 10_000)) is None
    error = ValueError("short")
    error.body = "x" * 10_000  # type: ignore[attr-defined]
    assert encode_error(error) == {
        "type": "builtins:ValueError",
        "args": ["short"],
        "attributes": {},
        "missing": ["body"],
    }


def _make_failure(record: Any) -> Failure:
    return Failure("step.failed", "step charge raised it", details={"type": "Declined", "native": record})


def test_the_end_of_an_iteration_is_not_raised_in_the_workflow() -> None:
    assert type(step_failed(_make_failure(encode_error(StopIteration(1))))) is StepFailed
