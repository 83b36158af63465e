"""The shape of outputs: the declared members that leave a node, and the payload along each connection. Pure."""

from collections.abc import Mapping
from typing import Any

from callboard.languages.graph.coercion import UNFIT, coerce, unwrap_or_empty
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.topology import GraphNode, Wire
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import CHARS_PER_STEP, Steps

Ports = dict[str, JSON]
"""The payloads of a node by port; null is a port that was not taken."""

UNTRIMMED = frozenset({"HUMAN_IN_THE_LOOP"})
"""Types whose output keeps undeclared members, since they come from outside."""


def shape_ports(node: GraphNode, ports: Ports, steps: Steps) -> Ports:
    """Shape each port's payload; names that begin with an underscore are not ports.

    :raises TooManySteps: if the shaping takes more steps than ``steps`` has left
    """
    for payload in ports.values():
        members = payload.values() if isinstance(payload, dict) else ()
        # A text may have to be parsed as JSON, if another type is declared.
        steps.take(sum([1 + len(one) // CHARS_PER_STEP if isinstance(one, str) else 1 for one in members]))
    return {port: shape_payload(node, payload) for port, payload in ports.items() if not port.startswith("_")}


def shape_payload(node: GraphNode, payload: JSON) -> JSON:
    """Drop undeclared members, except those that a start brings, and fill in missing ones. Lists, scalars and null stay
    as they are."""
    if not isinstance(payload, dict) or node.type in UNTRIMMED:
        return payload
    if node.spec is not None:
        declared = {
            name: _fit_value(payload[name], field.type) if name in payload else field.default
            for name, field in node.spec.output_params.items()
        }
        return {**payload, **declared} if node.type == "TRIGGER" else {**declared, **_error(payload)}
    if node.output_params:
        own = node.output_params
        return {name: payload[name] if name in payload else unwrap_or_empty(own[name]) for name in own}
    return payload


def _error(payload: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the undeclared members that a payload with ``success: false`` keeps."""
    if payload.get("success") is not False:
        return {}
    return {name: payload[name] for name in ("error_code", "error_details") if payload.get(name)}


def _fit_value(value: JSON, type: Any) -> JSON:
    made = coerce(value, type)
    return value if made is UNFIT else made


def find_refusal(ports: Mapping[str, JSON]) -> tuple[str, dict[str, JSON]] | None:
    """Return the first port whose payload has ``success: false``, and that payload; None if no port has."""
    for port, payload in ports.items():
        if isinstance(payload, dict) and payload.get("success") is False:
            return port, payload
    return None


def payload_along(ports: Ports, wire: Wire) -> JSON:
    """Return the payload that travels along a connection; null if its port was not taken.

    A connection of ``result`` carries all ports of a node that has no port of that name.
    """
    if wire.output_key == RESULT and RESULT not in ports:
        return ports
    return ports.get(wire.output_key)
