"""What expressions may read: the binding roots and their members at each position of a definition.

Source: pages *Execution context* and *Middleware mechanics* (section *Bindings*).
"""

from collections.abc import Mapping

Roots = Mapping[str, frozenset[str] | None]
"""The roots in scope and the members each has; None: any."""


def _members(names: str) -> frozenset[str]:
    return frozenset(names.split())


AMBIENT: Roots = {
    "vars": None,
    "execution": _members("id metadata platform"),
    "frame": _members("input metadata"),
    "failure": _members("type code message details retryable previous"),
}
"""What every expression of a frame may read."""

_STEP = _members("name id action input metadata")
_CALL = _members("input metadata")
_MIDDLEWARE = _members("input metadata")
_WINDOWS: Roots = {"flow": _members("input metadata vars result"), "provider": _members("input metadata result")}


def at_step(*, product: str | None = None) -> Roots:
    """A step's own fields; ``product`` is what its action has left there: ``result``, ``results`` or None."""
    return {**AMBIENT, "step": _STEP | {product} if product else _STEP}


def at_match() -> Roots:
    """The clauses of a Match."""
    return {**at_step(), "match": _members("input metadata")}


def at_call(around: Roots, *, gathered: bool) -> Roots:
    """The fields of a call object, at a place where ``around`` may be read."""
    return {**around, "call": _CALL | {"index"} if gathered else _CALL}


def at_arm(fields: Roots, target: str | None) -> Roots:
    """An arm of a call, whose other fields read ``fields``; the target is a ``provider`` or a ``flow``."""
    call = (fields["call"] or _CALL) | {"result"}
    windows = {target: _WINDOWS[target]} if target else _WINDOWS
    return {**fields, "call": call, **windows}


def at_phase(around: Roots, phase: str) -> Roots:
    """A phase block of a stack, at a place where ``around`` may be read."""
    inner = {name: members for name, members in around.items() if name in (*AMBIENT, "step")}
    return {**inner, "middleware": _MIDDLEWARE if phase == "onEntry" else _MIDDLEWARE | {"result"}}
