"""The exceptions that decoding JSON from other processes can raise, for one ``except`` clause.

msgspec reports invalid UTF-8 inside a string as a `UnicodeDecodeError`, which does not derive from its error classes,
and deep nesting as a `RecursionError`. A reader that catches only `msgspec.DecodeError` fails on such a message each
time it is delivered.
"""

import msgspec

JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Catch this around each `msgspec.json.decode` of bytes that another process wrote."""
