"""A provider of models on this machine: the Messages API's streamed answer, its first piece at once. Needs only Python.

``python provider.py`` prints its URL, and serves until it is killed.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

PIECES = 20
EVERY_S = 0.02
MODEL = "claude-haiku-4-5"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read a request, and stream an answer in chunks, each of whole lines."""

    def send(kind: str, **members: Any) -> None:
        event = f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()
        writer.write(b"%x\r\n%s\r\n" % (len(event), event))

    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    await reader.readexactly(int(lengths[0].split(b":")[1]))
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
    writer.write(b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n")
    message = {"id": "msg", "type": "message", "role": "assistant", "model": MODEL, "content": []}
    send("message_start", message={**message, "usage": {"input_tokens": 1, "output_tokens": 1}})
    send("content_block_start", index=0, content_block={"type": "text", "text": ""})
    for number in range(PIECES):
        if writer.is_closing():
            return  # the client has read enough
        send("content_block_delta", index=0, delta={"type": "text_delta", "text": f"piece {number} "})
        await asyncio.sleep(EVERY_S)
    send("content_block_stop", index=0)
    send("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": PIECES})
    send("message_stop")
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    writer.close()


async def pieces(url: str) -> AsyncGenerator[str]:
    """Ask the provider at the URL, over a new connection, and yield the pieces of its answer."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port)
    try:
        body = json.dumps({"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Go."}]}).encode()
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: provider\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        async for line in reader:
            if line.startswith(b"data: "):
                event = json.loads(line.removeprefix(b"data: "))
                if event["type"] == "content_block_delta":
                    yield event["delta"]["text"]
    finally:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
