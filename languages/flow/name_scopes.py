"""The check of the names of steps and flows: they exist, all steps are reachable, and no flow calls itself.

Steps are looked up in their own flow, flows in the flow that calls them and then outward.

Source: page *Flow object*, sections *Flow-name scoping* and *Step-name scoping*.
"""

from collections.abc import Iterator

from callboard.languages.flow.inspection import Findings, FlowNode
from callboard.languages.problems import did_you_mean, format_location, hint_at

FLOW_LEVELS_MAX = 200
"""How many flows may run inside one another, including the root."""


def check_names(findings: Findings) -> None:
    """Report unknown names, flows that call themselves, and steps that cannot be reached."""
    for node in findings.nodes:
        known = _report_unknown_steps(findings, node)
        if known:
            _warn_of_unreachable_steps(findings, node)
        _report_unknown_flows(findings, node)
        _warn_of_shadowed_flows(findings, node)
    finished = _report_cycles(findings)
    if finished is not None:
        _report_depth(findings, finished)


def _report_unknown_steps(findings: Findings, node: FlowNode) -> bool:
    """Report routes to unknown steps; return whether all routes are valid and the entrypoint is known."""
    steps = dict.fromkeys(step for step in node.routes if step is not None)
    if not steps:
        return False
    sound = None in node.routes
    for source, routes in node.routes.items():
        for location, name in routes:
            if name not in steps:
                sound = False
                hint = hint_at(name, steps)
                what = "entrypoint" if source is None else "step"
                findings.error("UNKNOWN_STEP", f"{what} {name!r} does not exist{hint}", location, "a step of this flow")
    return sound


def _warn_of_unreachable_steps(findings: Findings, node: FlowNode) -> None:
    reached = {name for _, name in node.routes[None]}
    frontier = list(reached)
    for step in frontier:
        fresh = {name for _, name in node.routes[step]} - reached
        reached |= fresh
        frontier += fresh
    for step in node.routes:
        if step is not None and step not in reached:
            message = f"nothing leads from the entrypoint to step {step!r}"
            findings.warn("UNREACHABLE_STEP", message, (*node.location, "steps", step))


def _report_unknown_flows(findings: Findings, node: FlowNode) -> None:
    for location, target in node.targets:
        if isinstance(target, str) and node.resolve(target) is None:
            meant = did_you_mean(target, node.names_in_sight())
            hint = f", did you mean {meant!r}?" if meant else ""
            elsewhere = next((other for other in findings.nodes if target in other.named), None)
            if elsewhere is not None and not meant:
                hint = f"; the one in {format_location((*elsewhere.location, 'flows'))} is not visible here"
            message = f"flow {target!r} does not exist{hint}"
            findings.error("UNKNOWN_FLOW", message, location, "a flow of this flow object or of one around it")


def _warn_of_shadowed_flows(findings: Findings, node: FlowNode) -> None:
    for name, inner in node.named.items():
        outer = node.outer.resolve(name) if node.outer else None
        if outer is not None:
            message = f"flow {name!r} hides the one in {format_location(outer.location)} from every call inside"
            findings.warn("SHADOWED_FLOW", message, inner.location)


# -- cycles and depth -------------------------------------------------------------------------------------------------


def _report_cycles(findings: Findings) -> list[FlowNode] | None:
    """Report each call that closes a cycle of flows, by name or from an inline flow to one around it.

    Without cycles, return all flows, each after the flows that it calls; otherwise None.
    """
    finished: dict[int, FlowNode] = {}
    sound = True
    for root in findings.nodes:
        way = [(root, _called_flows(root))]
        while way and id(way[0][0]) not in finished:
            node, onward = way[-1]
            step = next(onward, None)
            if step is None:
                finished[id(node)] = node
                way.pop()
                continue
            location, target = step
            names = [one for one, _ in way]
            if target in names:
                round_trip = [*names[names.index(target) :], target]
                message = f"the flow reaches itself: {' → '.join(_name(one) for one in round_trip)}"
                findings.error("FLOW_CYCLE", message, location, "no flow that runs itself; to repeat, route to a step")
                sound = False
            elif id(target) not in finished:
                way.append((target, _called_flows(target)))
    return list(finished.values()) if sound else None


def _report_depth(findings: Findings, finished: list[FlowNode]) -> None:
    """Report the calls that exceed `FLOW_LEVELS_MAX`; ``finished`` is the list that `_report_cycles` returns."""
    levels = {id(node): 1 for node in finished}
    for node in reversed(finished):
        level = levels[id(node)] + 1
        for location, target in _called_flows(node):
            if level == FLOW_LEVELS_MAX + 1 > levels[id(target)]:
                message = f"this is level {level} of flows that call one another"
                findings.error("FLOW_DEPTH", message, location, f"at most {FLOW_LEVELS_MAX} levels")
            levels[id(target)] = max(level, levels[id(target)])


def _called_flows(node: FlowNode) -> Iterator[tuple[tuple[str | int, ...], FlowNode]]:
    for location, target in node.targets:
        found = node.resolve(target) if isinstance(target, str) else target
        if found is not None:
            yield location, found


def _name(node: FlowNode) -> str:
    return format_location(node.location) or "the whole document"
