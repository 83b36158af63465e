"""The check of expressions: their syntax, and whether the names that they read are in scope.

Invalid syntax is an error. An unknown name fails only if it is evaluated, so it is a warning; if the expression tests
the name with ``has``, there is no warning.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from callboard.languages.cel import program
from callboard.languages.cel.errors import CelSyntaxError
from callboard.languages.cel.syntax import Comprehension, Has, Name, Node, Select, children
from callboard.languages.cel.template_strings import expressions_in
from callboard.languages.flow.inspection import Findings, FlowNode, Site
from callboard.languages.problems import Location, hint_at

TEXT_SHOWN_CHARS_MAX = 80
"""How many characters of an expression a problem shows."""


def check_expressions(findings: Findings) -> None:
    """Report the problems of all expressions that were found."""
    for site in findings.sites:
        for below, body in expressions_in(site.value):
            _check_expression(findings, site, (*site.location, *below), body)


def _check_expression(findings: Findings, site: Site, location: Location, body: str) -> None:
    try:
        compiled = program.compile(body)
    except CelSyntaxError as error:
        where = f"line {error.line}, column {error.column} of the expression"
        findings.error("EXPRESSION", f"{error.message}, at {where} {_shorten(body.strip())!r}", location, "CEL")
        return
    for root in sorted(compiled.roots - site.roots.keys()):
        hint = hint_at(root, site.roots)
        listed = f"one of {', '.join(sorted(site.roots))}"
        findings.warn("UNKNOWN_BINDING", f"there is no {root!r} to read here{hint}", location, listed)
    for name in sorted(compiled.unknown_functions):
        findings.warn("UNKNOWN_FUNCTION", f"there is no function {name!r}", location)
    tree = compiled.tree
    guarded = set(_find_members(tree, Has, frozenset()))
    for root, member in dict.fromkeys(_find_members(tree, Select, frozenset())):
        if (root, member) not in guarded:
            _check_member(findings, site, location, root, member)


def _check_member(findings: Findings, site: Site, location: Location, root: str, member: str) -> None:
    if root == "vars":
        declared = _declared_variables(site.node)
        if declared is not None and member not in declared and member not in site.node.assigned:
            hint = hint_at(member, {*declared, *site.node.assigned})
            message = f"nothing in this flow declares or assigns the variable {member!r}{hint}"
            findings.warn("UNKNOWN_VARIABLE", message, location)
        return
    members = site.roots.get(root)
    if members is not None and member not in members:
        message = f"{root!r} has no member {member!r} here"
        findings.warn("UNKNOWN_BINDING", message, location, f"one of {', '.join(sorted(members))}")


def _declared_variables(node: FlowNode) -> Mapping[str, Any] | None:
    """Return the variables that callers of a flow may pass, or None if they may pass any."""
    declared: Any = node.value.get("parameters", {}) if isinstance(node.value, dict) else {}
    if not isinstance(declared, dict) or declared.get("additionalProperties", False) is not False:
        return None
    properties: Any = declared.get("properties", {})
    if not isinstance(properties, Mapping) or "patternProperties" in declared:
        return None
    return properties


def _find_members(tree: Node, kind: type[Select] | type[Has], bound: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Yield the members of roots, one level deep, that an expression selects or tests with ``has``."""
    if isinstance(tree, Select | Has) and isinstance(tree.operand, Name):
        if isinstance(tree, kind) and tree.operand.name not in bound:
            yield tree.operand.name, tree.field
        return
    if isinstance(tree, Comprehension):
        yield from _find_members(tree.source, kind, bound)
        inner = bound | {tree.variable}
        for part in (tree.condition, tree.body):
            if part is not None:
                yield from _find_members(part, kind, inner)
        return
    for child in children(tree):
        yield from _find_members(child, kind, bound)


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_SHOWN_CHARS_MAX else text[: TEXT_SHOWN_CHARS_MAX - 1] + "…"
