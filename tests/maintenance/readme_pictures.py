"""The pictures of the README: ``python -m tests.maintenance.readme_pictures`` performs runs and draws them."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import structlog

from tests.support.browser import Reused, opened
from tests.support.flows import call, flow, returned
from tests.support.http_application import served
from tests.support.page_server import PageServer
from tests.support.places import ROOT
from tests.support.workflows import document

IMAGES = ROOT / "docs" / "images"
SIZE = {"width": 1200, "height": 760}
LOOKED_AT_N = 27
"""The event at which the run is looked at: the model is asked what went wrong for the second time."""

PRICES = {"scripted": {"input": 3.0, "output": 15.0}}

TRIAGE = document(
    {
        "gather": {"name": "Gather facts", "instruction": "Read what the checkout service says of its connections."},
        "investigate": {
            "name": "Investigate",
            "instruction": "Find out why requests to the checkout service time out.",
        },
        "fix": {"name": "Propose a fix", "instruction": "Propose the smallest change."},
        "escalate": {"name": "Escalate", "instruction": "Say who has to look at it."},
        "note": {"name": "Write it down", "instruction": "Write the incident down."},
    },
    [
        ("gather", "investigate", "something was found"),
        ("gather", "note", "there is nothing"),
        {"from": "investigate", "to": "gather", "when": "more facts are needed", "max_iterations": 2},
        ("investigate", "fix", "the cause is clear"),
        ("investigate", "escalate", "nobody knows"),
        ("fix", "note"),
        ("escalate", "note"),
    ],
)


def turn(text: str, delay_ms: int, tokens: int) -> dict[str, Any]:
    return {"text": text, "delay_ms": delay_ms, "usage": {"input_tokens": tokens, "output_tokens": tokens // 12}}


TURNS = {
    "gather": [
        turn("All 20 connections of the pool are taken, 184 wait.", 420, 1_400),
        turn("They are held for 30 s each, since 22:40.", 310, 2_100),
    ],
    "investigate": [
        turn("The pool is used up; what holds it is not known.", 900, 3_000),
        turn("A report holds its connection while it renders.", 900, 4_400),
    ],
    "fix": [turn("Give the connection back before rendering.", 260, 2_600)],
    "note": [turn("Checkout timed out: the nightly report held the pool.", 240, 1_900)],
}
ROUTES = {"gather": ["investigate", "investigate"], "investigate": ["gather", "fix"]}


BROKEN = {**TURNS, "gather": [{"error": "overloaded"}]}


def triage(turns: dict[str, Any]) -> dict[str, Any]:
    source = json.dumps({**TRIAGE, "id": "triage", "name": "triage"})
    return {"definition": {"source": source}, "model": "scripted", "script": {"turns": turns, "routes": ROUTES}}


def asking(title: str, question: str) -> dict[str, Any]:
    source = f'# {title}\n\nAsks a person.\n\n## STEP 1: Decide\n\n@elicit(confirm, "{question}")\n@output(decided)\n'
    return {"definition": {"source": source}}


def orders() -> dict[str, Any]:
    """A flow whose orders are child runs."""
    child = {"language": "flow", "source": json.dumps(flow({"done": returned(7)}))}
    target = {"provider": "mwl:provider.call/callboard/definition/v1", "with": child}
    steps: dict[str, Any] = {"ship": call(target), "done": returned()}
    return {"definition": {"language": "flow", "source": json.dumps(flow(steps))}}


async def perform(stage: PageServer) -> None:
    await stage.start("orders-7", orders())
    for run, turns in (
        ("checkout-40", BROKEN),
        ("checkout-41", TURNS),
        ("checkout-42", BROKEN),
        ("checkout-43", TURNS),
    ):
        await stage.start(run, triage(turns))
    await stage.start("refund-7", asking("Refund", "Refund 900 euros for order 7?"), end=False)
    await stage.start("refund-12", asking("Refund", "Refund 35 euros for order 12?"), end=False)
    await stage.start("release-43", asking("Release", "Release 4.3 to everybody?"), end=False)
    await stage.start("checkout-live", triage({**TURNS, "gather": [turn("…", 600_000, 1_000)]}), end=False)


async def main() -> None:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with TemporaryDirectory() as home:
        async with served(Path(home), prices=PRICES) as (client, connection):
            async for browser in opened():
                stage = PageServer(Reused(browser.browser), client, connection)
                await perform(stage)
                run = await browser.page(stage.url(f"runs/checkout-43?n={LOOKED_AT_N}"), color_scheme="light", **SIZE)
                await run.get_by_text("exactly what the model was sent").wait_for()
                await run.screenshot(path=IMAGES / "run.png")
                home_page = await browser.page(stage.url(), color_scheme="dark", **SIZE)
                await home_page.get_by_text("checkout-live").wait_for()
                await home_page.locator(".live .live").wait_for()
                await home_page.get_by_role("link", name="3 open").wait_for()
                await home_page.screenshot(path=IMAGES / "home.png")
                await browser.close_pages()


if __name__ == "__main__":
    anyio.run(main)
