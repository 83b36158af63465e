"""An S3 server, of the package moto, in a process of its own: a store of objects that speaks the protocol of Amazon."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import Thread

import httpx2

from tests.support.ports import free_ports

BUCKET = "segments"

ENV = {"AWS_ACCESS_KEY_ID": "user", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
"""The environment of clients."""


@contextmanager
def s3_server() -> Generator[str]:
    """Run a server with a bucket; yield its address."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        for line in server.stderr:
            if "Running on" in line:
                break
        # It logs every request, and would wait for ever for somebody to read that.
        reading = Thread(target=server.stderr.read, name="log of the S3 server")
        reading.start()
        try:
            httpx2.put(f"{url}/{BUCKET}").raise_for_status()
            yield url
        finally:
            server.terminate()
            reading.join()
    finally:
        server.terminate()
        server.communicate()
