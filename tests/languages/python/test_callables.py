"""Functions, static methods and bound methods are steps; anything else is refused where it is decorated."""

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from callboard import Agent, step, workflow
from callboard.testing import Scenario


class Store:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    @step
    @staticmethod
    async def charge(cents: int) -> str:
        return f"charged {cents}"

    @staticmethod
    @step(retries=1)
    def refund(cents: int) -> str:
        return f"refunded {cents}"

    @staticmethod
    @step(process=True)
    def weigh(grams: int) -> str:
        return f"weighs {grams}"

    def label(self, n: int) -> str:
        """Make a label."""
        return f"{self.prefix}{n}"


label = step(Store("no ").label)


@workflow
async def sell() -> list[str]:
    return [await Store.charge(1), await Store("").refund(2), await Store.weigh(3), await label(4)]


def test_static_methods_and_methods_of_an_object_are_steps(scenario: Scenario) -> None:
    expected = ["charged 1", "refunded 2", "weighs 3", "no 4"]
    scenario.start(sell)
    assert scenario.result.output == expected
    scenario.crash_everywhere()
    assert asyncio.run(sell()) == expected
    assert Agent("clerk", tools=[Store("no ").label]).name == "clerk"


def _method(decorate: Any) -> Any:
    class Inner:
        @decorate
        def charge(self, cents: int) -> int:
            return cents

    return Inner


def _class_method(decorate: Any) -> Any:
    class Inner:
        @decorate
        @classmethod
        def charge(cls, cents: int) -> int:
            return cents

    return Inner


async def _generates(n: int) -> AsyncIterator[int]:
    yield n


REFUSED: dict[str, tuple[Any, str]] = {
    "method": (_method, "Inner.charge is a method: the object that it is called on is not recorded"),
    "class method": (_class_method, "charge is a class method"),
    "class": (lambda decorate: decorate(Store), "Store is a class, but a {} must be a function"),
    "partial": (lambda decorate: decorate(functools.partial(print, 1)), "and not an object of type partial"),
    "generator": (lambda decorate: decorate(_generates), "_generates is a generator"),
    "step": (lambda decorate: decorate(label), "label is a step already"),
    "workflow": (lambda decorate: decorate(sell), "sell is a workflow already"),
}


@pytest.mark.parametrize("decorate", [step, workflow], ids=["step", "workflow"])
@pytest.mark.parametrize("kind", REFUSED)
def test_the_decorator_refuses_other_callables_with_the_reason(kind: str, decorate: Any) -> None:
    make, reason = REFUSED[kind]
    with pytest.raises(TypeError, match=reason.format(decorate.__name__)):
        make(decorate)


def test_a_method_of_an_object_does_not_run_in_another_process() -> None:
    with pytest.raises(TypeError, match="runs in another process"):
        step(process=True)(Store("no ").label)
