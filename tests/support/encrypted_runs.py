"""Encrypted runs, for tests: their texts, their start, and all that is stored of them."""

from typing import Any

import anyio

from callboard.bus.log.encryption import KEY_BYTES, Key
from callboard.runtime.client.connection import Connection
from tests.support.service_client import PATIENCE_S, Caller

TENANT = "acme"
SECRET = "Ada Lovelace of St James's Square"
KEY = Key("ada", bytes(range(KEY_BYTES)))
ASKS = """# Ask

## STEP 1: Ask

@elicit(input, "Your words?")
@output(words)

## STEP 2: Tell

Tell {{words}}.
"""


def start(**fields: Any) -> dict[str, Any]:
    return {"definition": {"source": ASKS}, "model": "scripted", "script": {"default": {"text": "ok"}}, **fields}


async def question(caller: Caller, run: str) -> dict[str, Any]:
    with anyio.fail_after(PATIENCE_S):
        while not (asked := (await caller.ask("questions", {"run_id": run}))["questions"]):
            pass
    return asked[0]


async def everything(connection: Connection) -> bytes:
    """Return all bytes of the stream."""
    return b"".join([message.data async for message in connection.log.copy_messages(">")])
