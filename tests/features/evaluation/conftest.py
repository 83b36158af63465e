import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.workdir import Workdir

SHOP = """\
id: shop
name: Shop
entry: look
nodes:
  look: {name: Look, instruction: Look up the order., skills: [orders], output: {type: object}}
  refund: {name: Refund, instruction: Refund the amount., skills: [orders]}
  deny: {name: Deny, instruction: Say no.}
edges:
  - {from: look, to: refund, when: the amount is small}
  - {from: look, to: deny, when: the amount is large}
"""

ORDERS = """\
- id: orders
  name: Orders
  description: orders
  category: general
  tools:
    - name: lookup
      description: look up an order
      input_schema: {type: object, properties: {id: {type: string}}}
      python: shoptools_of_the_test:lookup
    - name: pay
      description: pay back
      input_schema: {type: object, properties: {amount: {type: number}}}
      python: shoptools_of_the_test:pay
"""

TOOLS = '''\
from pathlib import Path

def lookup(id: str) -> dict:
    """Look up."""
    _note(f"lookup {id}")
    return {"amount": 49.99}

def pay(amount: float) -> dict:
    """Pay."""
    _note(f"pay {amount}")
    return {"paid": amount}

def _note(line: str) -> None:
    with Path("called.txt").open("a") as file:
        file.write(line + "\\n")
'''


def answers(amount: float = 49.99, said: str = "It was refunded today.", route: str = "refund") -> dict[str, Any]:
    """The script of a run of the shop."""
    paying = [{"tool_calls": [{"tool": "pay", "input": {"amount": amount}}]}, {"text": said}]
    looking = [{"tool_calls": [{"tool": "lookup", "input": {"id": "7"}}]}, {"data": {"amount": 49.99}}]
    return {"turns": {"look": looking, "refund": paying, "deny": [{"text": said}]}, "routes": {"look": [route]}}


class Shop:
    """A folder with a recorded run, ``shop-1``, in a dataset named ``support``, and the command line."""

    def __init__(self, workdir: Workdir) -> None:
        self.workdir = workdir
        for name, text in (("shop.yaml", SHOP), ("skills.yaml", ORDERS), ("shoptools_of_the_test.py", TOOLS)):
            workdir.write(name, text)
        workdir.write("script.json", answers())

    def record(self, run: str = "shop-1", *more: str) -> None:
        done = self.workdir.run("run", "shop.yaml", "--script", "script.json", "--run-id", run, *more)
        assert done.exit_code == 0, done.output

    def called(self) -> list[str]:
        """The calls of tools so far."""
        file = self.workdir.folder / "called.txt"
        return file.read_text().splitlines() if file.exists() else []

    def eval(self, *args: str, dataset: str = "support") -> dict[str, Any]:
        """The report of an experiment, whatever its exit code."""
        done = self.workdir.run("eval", dataset, *args, "--json")
        assert done.stdout, done.output
        return json.loads(done.stdout)

    def row(self, *args: str) -> dict[str, Any]:
        """The only row of an experiment's report."""
        [row] = self.eval(*args)["rows"]
        return row

    def script(self, **said: Any) -> str:
        """Write another script; return the name of its file."""
        return self.workdir.write("other.json", answers(**said))


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    return Workdir(tmp_path)


@pytest.fixture
def shop(workdir: Workdir, forget_modules: Callable[[], None]) -> Shop:
    made = Shop(workdir)
    made.record()
    assert workdir.run("dataset", "add", "support", "--run", "shop-1").exit_code == 0
    return made


@pytest.fixture
def forget_modules(tmp_path: Path) -> Any:
    from tests.support.workdir import forgotten_modules

    with forgotten_modules(tmp_path):
        yield
