"""Bindings: the roots that expressions may read, and their members, at each position of a definition.

Source: pages *Execution context* and *Middleware mechanics* (section *Bindings*).
"""

from collections.abc import Mapping

Roots = Mapping[str, frozenset[str] | None]
"""The roots in scope, each with its members; None: any members."""


def _members(names: str) -> frozenset[str]:
    return frozenset(names.split())


AMBIENT: Roots = {
    "vars": None,
    "execution": _members("id metadata platform"),
    "frame": _members("input metadata"),
    "failure": _members("type code message details retryable previous"),
}
"""The roots that every expression of a frame may read."""

_STEP = _members("name id action input metadata")
_CALL = _members("input metadata")
_MIDDLEWARE = _members("input metadata")
_WINDOWS: Roots = {"flow": _members("input metadata vars result"), "provider": _members("input metadata result")}


def at_step(*, product: str | None = None) -> Roots:
    """Return the roots of a step's fields. ``product`` is the member with the action's product: ``result``, ``results``
    or None."""
    return {**AMBIENT, "step": _STEP | {product} if product else _STEP}


def at_match() -> Roots:
    """Return the roots of the clauses of a Match."""
    return {**at_step(), "match": _members("input metadata")}


def at_call(around: Roots, *, gathered: bool) -> Roots:
    """Return the roots of the fields of a call object; ``around`` are the roots at its position."""
    return {**around, "call": _CALL | {"index"} if gathered else _CALL}


def at_arm(fields: Roots, target: str | None) -> Roots:
    """Return the roots of an arm of a call; ``fields`` are those of its other fields, ``target`` is provider or
    flow."""
    call = (fields["call"] or _CALL) | {"result"}
    windows = {target: _WINDOWS[target]} if target else _WINDOWS
    return {**fields, "call": call, **windows}


def at_phase(around: Roots, phase: str) -> Roots:
    """Return the roots of a phase block of a middleware; ``around`` are the roots at the position of its stack."""
    inner = {name: members for name, members in around.items() if name in (*AMBIENT, "step")}
    return {**inner, "middleware": _MIDDLEWARE if phase == "onEntry" else _MIDDLEWARE | {"result"}}
