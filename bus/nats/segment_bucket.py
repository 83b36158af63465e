"""Segments as objects of a bucket in an S3-compatible object store, through the library obstore.

An object is there as a whole or not at all, and a store acknowledges it when it will not be lost. So each call is one
step, as with files. The credentials, the region and other options are those of the environment (``AWS_ACCESS_KEY_ID``,
``AWS_SECRET_ACCESS_KEY``, ``AWS_REGION``, …), or of the machine's role.
"""

import datetime as dt
import os
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from callboard.bus.nats.segments import SUFFIX
from callboard.lib.background_imports import import_beside

if TYPE_CHECKING:
    from obstore.store import S3Store

TIMEOUT = "30s"
CONNECT_TIMEOUT = "5s"
RETRIES_MAX = 3
RETRY_TIMEOUT = dt.timedelta(seconds=30)
"""Limits of one request: its duration, that of connecting, the number of retries, and their duration together."""


class SegmentBucket:
    """Segments as objects. ``url`` is ``s3://bucket/prefix``.

    ``endpoint`` is the address of the store; without it that of the environment (``AWS_ENDPOINT_URL``), or Amazon's.
    """

    def __init__(self, url: str, endpoint: str | None = None) -> None:
        self._url = url
        self._endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        self._opened: S3Store | None = None

    async def _store(self) -> "S3Store":
        if self._opened is None:
            await import_beside("obstore", "obstore.store")
            from obstore.store import S3Store

            bucket, _, prefix = self._url.removeprefix("s3://").partition("/")
            self._opened = S3Store(
                bucket,
                prefix=prefix.strip("/") or None,
                config={"endpoint": self._endpoint} if self._endpoint is not None else {},
                client_options={
                    "allow_http": (self._endpoint or "").startswith("http://"),
                    "timeout": TIMEOUT,
                    "connect_timeout": CONNECT_TIMEOUT,
                },
                retry_config={"max_retries": RETRIES_MAX, "retry_timeout": RETRY_TIMEOUT},
            )
        return self._opened

    async def put(self, name: str, data: bytes) -> None:
        store = await self._store()
        with self._failures(name):
            # In one request: parts of an upload that was interrupted would stay.
            await store.put_async(name, data, use_multipart=False)

    async def read(self, name: str, offset: int, length: int) -> bytes:
        store = await self._store()
        with self._failures(name):
            if offset >= 0:
                return bytes(await store.get_range_async(name, start=offset, length=length))
            found = await store.get_async(name, options={"range": {"suffix": -offset}})
            return bytes(await found.bytes_async())[:length]

    async def names(self) -> list[str]:
        store = await self._store()
        with self._failures(""):
            found = await store.list().collect_async()
        return sorted(one["path"] for one in found if one["path"].endswith(SUFFIX))

    async def age_s(self, name: str) -> float:
        store = await self._store()
        with self._failures(name):
            found = await store.head_async(name)
        return (dt.datetime.now(dt.UTC) - found["last_modified"]).total_seconds()

    async def delete(self, name: str) -> None:
        store = await self._store()
        try:
            with self._failures(name):
                await store.delete_async(name)
        except FileNotFoundError:
            return

    @contextmanager
    def _failures(self, name: str) -> Generator[None]:
        """Report failures of the store as those of files.

        :raises FileNotFoundError: if the object does not exist
        :raises OSError: if the store cannot be reached, or refuses the request
        """
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{self._url} has no object {name}") from error
        except BaseError as error:
            # The library's messages have further lines with details of the request.
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise OSError(f"the object store of {self._url} failed: {reason}") from error
