"""A file that a node sends to a service: its content is in the input; the worker's own files are not read."""

import base64
import binascii
import mimetypes
from typing import Any, NamedTuple

import msgspec

from callboard.actors.services.action import ActionRefused, ServiceAction

FILE_BYTES_MAX = 8 * 1024 * 1024

_ANY_TYPE = "application/octet-stream"


class Upload(NamedTuple):
    """A file in the form of a request."""

    name: str
    content: bytes
    type: str


def upload_of(action: ServiceAction, group: str = "", *, otherwise: str = "attachment.txt") -> Upload | None:
    """Return the file of an action, None if it has none: `file_base64`, or else `file_content` as text or JSON.

    The node's object ``group`` may name it, or give a path whose last part is its name.

    :raises ActionRefused: if it cannot be decoded, or is too large
    """
    encoded, plain = action.first_given("file_base64"), action.first_given("file_content")
    if encoded is None and plain is None:
        return None
    content = _plain(plain) if encoded is None else _decode_upload(action, encoded)
    if len(content) > FILE_BYTES_MAX:
        message = f"{action.name} sends files of {FILE_BYTES_MAX} bytes at most, not {len(content)}"
        raise ActionRefused("missing_parameters", message, "send less")
    path = str(action.within(group, "filename", "file_name", "file_path") or "")
    name = path.replace("\\", "/").rpartition("/")[2] or otherwise
    return Upload(name, content, mimetypes.guess_type(name)[0] or _ANY_TYPE)


def _plain(given: Any) -> bytes:
    return given.encode() if isinstance(given, str) else msgspec.json.encode(given)


def _decode_upload(action: ServiceAction, encoded: Any) -> bytes:
    try:
        return base64.b64decode(str(encoded), validate=True)
    except (binascii.Error, ValueError) as error:
        message = f"{action.name} cannot read its file_base64: {error}"
        raise ActionRefused("missing_parameters", message, "encode the file in base64") from error
