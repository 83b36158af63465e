"""Exceptions as JSON: recorded by class, arguments and attributes where they were raised, and made again elsewhere.

No constructor is called for that, as it may take other arguments than the exception has, and may have effects. No
module is imported either: a class is found where it is loaded already.
"""

import sys
from collections.abc import Callable, Mapping
from copyreg import _slotnames as slot_names  # type: ignore[attr-defined]  # pyright: ignore
from importlib import import_module
from typing import Any

from callboard.lib.json_types import JSON
from callboard.lib.text import encode_json

CHARS_MAX = 8_000
"""Maximum length of the JSON of the arguments, and of all attributes, of an exception."""

_STATIC = 1 << 9
"""The flag of a Python type that it is no type of the interpreter itself (``Py_TPFLAGS_HEAPTYPE``)."""


class Noted:
    """What is recorded of an exception: its class, its arguments and attributes, and the names of attributes that have
    no form in JSON or are too long."""

    def __init__(self, noted: Any, decode: Callable[[JSON], Any]) -> None:
        self.type: str = str(noted["type"])
        self.args: list[Any] = decode(noted["args"])
        self.attributes: dict[str, Any] = decode(noted["attributes"])
        self.missing = tuple[str, ...](noted.get("missing", ()))

    def make(self, kind: type[Exception]) -> Exception:
        """Make an exception of a class. Raises anything if that is not possible."""
        base: Any = next(one for one in kind.__mro__ if not one.__flags__ & _STATIC)
        made: Exception = base.__new__(kind, *self.args)
        base.__init__(made, *self.args)
        for name, value in self.attributes.items():
            object.__setattr__(made, name, value)
        return made


def note_error(
    error: Exception,
    encode: Callable[[Any], JSON],
    decode: Callable[[JSON], Any],
    own: Mapping[str, Any] | None = None,
) -> JSON:
    """Return the JSON of an exception; None if it could not be made again with its arguments and its text.

    ``own`` are the globals of the module whose classes are found there, and not in the loaded module of its name.
    """
    kind = type(error)
    try:
        # The arguments of an OSError lack its files.
        args = error.__reduce__()[1] if isinstance(error, OSError) else error.args  # pyright: ignore
        attributes, missing = _attributes_of(error, encode, decode)
        noted: dict[str, Any] = {"type": f"{kind.__module__}:{kind.__qualname__}", "args": encode(list(args))}
        noted |= {"attributes": attributes, **({"missing": missing} if missing else {})}
        again = Noted(noted, decode).make(kind)
        is_found = find_class(noted["type"], own) is kind
        is_same = _same(again.args, error.args) and str(again) == str(error)
        return noted if is_found and is_same and len(encode_json(noted["args"])) <= CHARS_MAX else None
    except Exception:
        return None


def _attributes_of(
    error: Exception, encode: Callable[[Any], JSON], decode: Callable[[JSON], Any]
) -> tuple[dict[str, JSON], list[str]]:
    held = {name: getattr(error, name) for name in slot_names(type(error)) if hasattr(error, name)} | vars(error)
    held.pop("__notes__", None)
    found, missing, chars = dict[str, JSON](), list[str](), 0
    for name, value in held.items():
        try:
            json = encode(value)
            chars += len(encode_json(json))
            is_kept = chars <= CHARS_MAX and _same(decode(json), value)
        except Exception:
            is_kept, json = False, None
        if is_kept:
            found[name] = json
        else:
            missing.append(name)
    return found, missing


def _same(again: Any, value: Any) -> bool:
    """Return whether a value that was read back from JSON is the value."""
    return type(again) is type(value) and again == value


def read_noted(noted: Any, decode: Callable[[JSON], Any]) -> Noted | None:
    """Return what is recorded of an exception; None if nothing is."""
    return Noted(noted, decode) if isinstance(noted, dict) else None


def find_class(named: str, own: Mapping[str, Any] | None = None) -> type[Exception] | None:
    """Return the class of exceptions that ``module:name`` names; None if it is not loaded here."""
    module, _, name = named.partition(":")
    if own is not None and own.get("__name__") == module:
        members = own
    elif module in sys.modules:
        # If another thread is importing the module, this waits for it: the class would be missing in half a module.
        members = vars(import_module(module))
    else:
        return None
    found: Any = None
    for part in name.split("."):
        # Not getattr: the function __getattr__ of a module may import others.
        found = members.get(part)
        members = vars(found) if isinstance(found, type) else {}
    return found if isinstance(found, type) and issubclass(found, Exception) else None
