"""Inside the sandbox's process: reads a request, compiles its source, calls its function, writes each result.

The answer is JSON: ``{"results": [{"value": …} | {"error": "…", "code": "…"}, …], "printed": "…"}``, or, if nothing
could be called, ``{"failure": {"code": "…", "message": "…"}}``. The restricted names and modules are a
convenience and a help against mistakes; what keeps it in are the walls (`callboard.actors.sandbox.walls`).

Only the standard library is imported here: this is loaded by the sandbox's own process.
"""

import base64
import builtins
import calendar
import collections
import collections.abc
import copy
import copyreg
import datetime
import decimal
import encodings.ascii
import encodings.latin_1
import encodings.utf_8
import fractions
import functools
import hashlib
import hmac
import html
import itertools
import json
import math
import operator
import random
import re
import statistics
import string
import sys
import textwrap
import time
import traceback
import types
import typing
import urllib.parse
import uuid
import warnings
from collections.abc import Callable, Mapping
from typing import Any

# These modules import it on first use, when the filter of system calls no longer permits reading files.
import _strptime  # isort: skip  # pyright: ignore[reportMissingModuleSource, reportMissingImports]

MODULES = {
    module.__name__: module
    for module in (
        base64,
        calendar,
        collections,
        collections.abc,
        copy,
        datetime,
        decimal,
        fractions,
        functools,
        hashlib,
        hmac,
        html,
        itertools,
        json,
        math,
        operator,
        random,
        re,
        statistics,
        string,
        textwrap,
        time,
        typing,
        urllib.parse,
        uuid,
    )
}
"""What code may import."""

INTERNAL = ("_strptime", "copyreg", "warnings")
"""Modules that C extensions import on behalf of the code that calls them."""

KEPT = (encodings.ascii, encodings.latin_1, encodings.utf_8, _strptime, copyreg)

REFUSED = ("breakpoint", "compile", "eval", "exec", "input", "memoryview", "open")
"""Functions of Python that code may not call; a call raises an error that says so."""

ABSENT = ("copyright", "credits", "exit", "help", "license", "quit")

ERROR_CHARS_MAX = 2_000
LINE_CHARS_MAX = 200
PRINTED_CHARS_MAX = 8_000
"""Maximum length of an error, of the line that raised it, and of the end of the printed text, in an answer."""

FILE = "<code>"
"""The file name of the source in tracebacks."""


class _Refused(Exception):
    """The code used a function or a module that it may not use."""


class _TooLarge(Exception):
    """The results have more bytes than they may."""


class _Failed(Exception):
    """The source gives no function to call."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _Printed:
    """A stream that keeps the last characters written to it."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text = (self.text + text)[-PRINTED_CHARS_MAX:]
        return len(text)

    def flush(self) -> None:
        """Do nothing: writes are not buffered."""


def answer_request(request: bytes, output_bytes_max: int) -> bytes:
    """Return the answer to a request; its results have at most ``output_bytes_max`` bytes together."""
    printed = _Printed()
    warnings.simplefilter("ignore")
    try:
        asked = json.loads(request)
        source: str = asked["source"]
        inputs: list[Any] = asked["inputs"]
        function = _function(source, asked["function"], printed)
        results = _results(
            function, source, [_wrap_value(one) if asked["wrap"] else one for one in inputs], output_bytes_max
        )
    except _Failed as failed:
        return _failure(failed.code, failed.message)
    except _TooLarge:
        return _failure("code.output_too_large", f"the results have more than {output_bytes_max} bytes")
    return b'{"results":[' + b",".join(results) + b'],"printed":' + _encode_text(printed.text) + b"}"


def _results(function: Callable[[Any], Any], source: str, inputs: list[Any], bytes_max: int) -> list[bytes]:
    results: list[bytes] = []
    room = bytes_max
    for one in inputs:
        results.append(_result(function, source, one))
        room -= len(results[-1])
        if room < 0:
            raise _TooLarge
    return results


def _result(function: Callable[[Any], Any], source: str, input: Any) -> bytes:
    try:
        value = function(input)
    except BaseException as error:
        code, message = _describe(error, source)
        return _error(code, message)
    try:
        return b'{"value":' + _json(value) + b"}"
    except MemoryError:
        return _error("code.memory", "there was no memory left to write the result")
    except BaseException as error:
        why = f"{type(error).__name__}: {_words(error)}"
        return _error("code.bad_output", f"returned a {type(value).__name__} that is not JSON: {why}")


def _json(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_unwrap_value, separators=(",", ":"))
    return text.encode()


def _error(code: str, message: str) -> bytes:
    return b'{"error":' + _encode_text(message[:ERROR_CHARS_MAX]) + b',"code":"' + code.encode() + b'"}'


def _failure(code: str, message: str) -> bytes:
    return b'{"failure":{"code":"' + code.encode() + b'","message":' + _encode_text(message[:ERROR_CHARS_MAX]) + b"}}"


def _encode_text(text: str) -> bytes:
    return json.dumps(text.encode("utf-8", "replace").decode()).encode()


# -- finding the function ----------------------------------------------------------------------------------------------


def _function(source: str, name: str | None, printed: _Printed) -> Callable[[Any], Any]:
    """Return the function that a source defines, or the ``lambda`` that the source is.

    :raises _Failed: if the source does not define it
    """
    try:
        compiled = compile(source.strip() if name is None else source, FILE, "eval" if name is None else "exec")
    except Exception as error:  # not only syntax: null bytes, numbers that are too long, too deep nesting
        raise _Failed("code.invalid", f"the source is not valid Python: {_syntax(error)}") from None
    names = _names(printed)
    try:
        found = eval(compiled, names)
        function = found if name is None else names.get(name)
    except BaseException as error:
        code, message = _describe(error, source)
        raise _Failed(code, message) from None
    if not callable(function):
        what = f"the source defines no function {name}" if name else "the source is not a function"
        raise _Failed("code.invalid", what)
    return function


def _names(printed: _Printed) -> dict[str, Any]:
    """Return the globals that a source is executed in."""
    offered = {name: value for name, value in vars(builtins).items() if name not in ABSENT}
    offered |= {name: _refusing(name) for name in REFUSED}
    offered["__import__"] = _import
    offered["print"] = functools.partial(print, file=printed)
    generics = {"Any": Any, "Dict": dict, "List": list, "Optional": typing.Optional}
    return {"__builtins__": offered, "__name__": "code", "json": json, **generics}


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*_given: Any, **_named: Any) -> Any:
        raise _Refused(f"code may not use {name}")

    return refuse


def _import(
    name: str, names: Mapping[str, Any] | None = None, _locals: Any = None, wanted: Any = (), level: int = 0
) -> Any:
    if name in INTERNAL:
        return sys.modules[name]
    if level or name not in MODULES:
        raise _Refused(f"code may not import {name!r}, only {', '.join(sorted(MODULES))}")
    if wanted:
        return MODULES[name]
    root, _, below = name.partition(".")
    # `import urllib.parse` binds `urllib`, which may then have this submodule only.
    return MODULES.get(root) or types.SimpleNamespace(**{below: MODULES[name]})


# -- describing failures -----------------------------------------------------------------------------------------------


def _describe(error: BaseException, source: str) -> tuple[str, str]:
    """Return the code of an error that was raised, and its text with the line of the source."""
    code = "code.raised"
    if isinstance(error, MemoryError):
        code = "code.memory"
    elif isinstance(error, _Refused | PermissionError | BlockingIOError):
        code = "code.refused"
    name = "" if isinstance(error, _Refused) else f"{type(error).__name__}: "
    return code, f"{name}{_words(error)}".removesuffix(": ") + _place(error, source)


def _words(error: BaseException) -> str:
    try:
        return str(error)[:ERROR_CHARS_MAX]
    except Exception as broken:  # the code's own class may fail here, which must not hide the original error
        return f"(its text cannot be read: {type(broken).__name__})"


def _place(error: BaseException, source: str) -> str:
    numbers = [number for frame, number in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == FILE]
    return f" ({_line(source, numbers[-1])})" if numbers else ""


def _line(source: str, number: int) -> str:
    lines = source.split("\n")
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return f"line {number}: {text[:LINE_CHARS_MAX]}" if text else f"line {number}"


def _syntax(error: Exception) -> str:
    if not isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}".removesuffix(": ")
    where = f" (line {error.lineno}: {(error.text or '').strip()[:LINE_CHARS_MAX]})" if error.lineno else ""
    return f"{error.msg}{where}"


# -- inputs that answer to names ---------------------------------------------------------------------------------------


class _Named:
    """An input that is not an object, but answers to ``["value"]``, ``["output"]`` and ``["data"]["result"]``."""

    plain: Any

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            match key:
                case "value" | "output":
                    return self.plain
                case "data":
                    return {"result": self.plain}
                case _:
                    raise KeyError(key)
        return self.plain[key]

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


class _Text(_Named, str):
    pass


class _Whole(_Named, int):
    pass


class _Fraction(_Named, float):
    pass


class _List(_Named, list[Any]):
    pass


class _Single(_Named):
    """True, false or null: Python's types of these cannot be subclassed."""

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def __bool__(self) -> bool:
        return bool(self.plain)

    def __eq__(self, other: object) -> bool:
        return self.plain == other

    def __hash__(self) -> int:
        return hash(self.plain)

    def __str__(self) -> str:
        return str(self.plain)

    __repr__ = __str__


def _wrap_value(value: Any) -> Any:
    kind: Any
    match value:
        case dict():
            return value
        case bool() | None:
            return _Single(value)
        case str():
            kind = _Text
        case int():
            kind = _Whole
        case float():
            kind = _Fraction
        case _:
            kind = _List
    made = kind(value)
    made.plain = value
    return made


def _unwrap_value(value: Any) -> Any:
    if isinstance(value, _Single):
        return value.plain
    raise TypeError(f"objects of type {type(value).__name__} cannot be written as JSON")
