"""``callboard providers``: the call providers and middlewares that a flow can name, and their contracts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from callboard.surfaces.cli.output import print_answer, style
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.languages.provider_contracts import Contract
    from callboard.runtime.settings.config import Config


@click.command()
@click.argument("uri", required=False)
@settings_options
def providers(uri: str | None, settings: Settings) -> None:
    """List the providers that a flow can name, or show the contract of one, by URI or by a name such as http.

    Providers come from the specification, from Callboard, from installed packages and from `providers.classes` in the
    configuration. Needs no server; workers on other machines may have other providers.
    """
    from callboard.languages.registry import provider_contracts

    found = known_providers(load_config(settings))
    if uri is None:
        rows = [
            {"uri": one.contract.uri, "kind": one.kind, "origin": one.origin, "description": one.contract.description}
            for one in found
        ]
        print_answer({"providers": rows}, _list_lines(found), as_json=settings.as_json)
        return
    one = _find_provider(found, uri)
    failures = {code: provider_contracts().failures.get(code, "") for code in one.contract.closed}
    told = {"origin": one.origin, "document": one.document, "failures": failures}
    print_answer(told, _describe_contract(one), as_json=settings.as_json)


SENTENCE_CHARS_MAX = 90
"""How many characters of a description a list shows."""

WIDTH = 100
"""Characters of a line."""


class KnownProvider(NamedTuple):
    """A provider: its contract, its document and its origin."""

    contract: "Contract"
    document: dict[str, Any]
    origin: str

    @property
    def name(self) -> str:
        """The part of the URI after the namespace, without the version: ``http``, ``retry``."""
        words = self.contract.uri.split("/")[2:]
        return "/".join(words[:-1] or words)

    @property
    def kind(self) -> str:
        return "call" if self.contract.is_call else "middleware"


def known_providers(config: "Config") -> list[KnownProvider]:
    """Return the providers of a worker with this configuration.

    :raises ConfigInvalid: if an installed provider cannot be used
    """
    from callboard.languages.provider_contracts import contract_of
    from callboard.languages.registry import provider_contracts
    from callboard.runtime.worker.providers import find_installed

    known = provider_contracts()
    ours = [
        KnownProvider(contract, known.document_of(contract), "specification" if uri in known.specified else "callboard")
        for uri, contract in known.shipped.items()
    ]
    theirs = [
        KnownProvider(contract_of(one.document), one.document, one.origin) for one in find_installed(config.providers)
    ]
    return sorted([*ours, *theirs], key=lambda one: (one.kind, one.contract.uri))


def _list_lines(found: list[KnownProvider]) -> Iterator[str]:
    width = max(len(one.contract.uri) for one in found)
    for title, kind in (("Call providers", "call"), ("Middlewares", "middleware")):
        yield style(title, bold=True)
        for one in found:
            if one.kind == kind:
                yield f"  {one.contract.uri.ljust(width)}  {_first_sentence(one.contract.description)}"


def _find_provider(known: list[KnownProvider], wanted: str) -> KnownProvider:
    from callboard.bus.errors import CallboardError
    from callboard.languages.problems import hint_at

    by_uri = {one.contract.uri: one for one in known}
    if wanted in by_uri:
        return by_uri[wanted]
    named = [one for one in known if one.name == wanted]
    if len(named) == 1:
        return named[0]
    if named:
        remedy = f"Use {' or '.join(one.contract.uri for one in named)}."
        raise CallboardError("provider.ambiguous", "the name is ambiguous", wanted, remedy)
    hint = hint_at(wanted, [*by_uri, *(one.name for one in known)])
    remedy = "`callboard providers` lists all of them."
    raise CallboardError("provider.unknown", f"unknown provider{hint}", wanted, remedy)


# -- a contract in words ----------------------------------------------------------------------------------------------


def _describe_contract(one: KnownProvider) -> Iterator[str]:
    from callboard.languages.registry import provider_contracts

    contract = one.contract
    yield style(contract.uri, bold=True)
    yield from _wrap_text(contract.description)
    yield f"\nOrigin: {one.origin}"
    if contract.is_call:
        yield from _describe_members("with", contract.parameters)
        yield from _describe_members("provider.metadata", contract.metadata)
    else:
        yield f"Attaches to: {', '.join(contract.attachment)}"
        for name, phase in contract.phases.items():
            yield f"\n{name}: {phase.kind}"
            yield from _wrap_text(phase.description, "  ")
            yield from _describe_members(f"{name}.with", phase.parameters)
        yield from _describe_members("middleware.metadata", contract.metadata)
    yield "\nFailures" if contract.closed or contract.open else "\nFailures: no additional ones"
    for code in contract.closed:
        yield f"  {code}"
        yield from _wrap_text(provider_contracts().failures.get(code, ""), "    ")
    for region in contract.open:
        yield f"  {region}  (open)"


def _describe_members(title: str, schema: dict[str, Any] | None) -> Iterator[str]:
    if schema is None:
        yield f"\n{title}: nothing"
        return
    yield f"\n{title}" if schema.get("properties") else f"\n{title}: anything"
    yield from _describe_rows(schema, "  ")


def _describe_rows(schema: dict[str, Any], indent: str) -> Iterator[str]:
    """Yield a line for each member of an object, with its own members below it."""
    from callboard.service.operations.results import compact

    properties: dict[str, Any] = schema.get("properties", {})
    required: list[str] = schema.get("required", [])
    width = max(map(len, properties), default=0)
    for name, declared in properties.items():
        member: dict[str, Any] = declared if isinstance(declared, dict) else {}
        default = f", default {compact(member['default'])}" if "default" in member else ""
        yield f"{indent}{name.ljust(width)}  {_type_text(member)}{', required' if name in required else default}"
        yield from _wrap_text(member.get("description", ""), indent + " " * (width + 2))
        yield from _describe_rows(_inner_schema(member), indent + "    ")
        for variant in member.get("oneOf", []):
            yield f"{indent}    {_variant_name(variant)}"
            yield from _describe_rows(_without_kind(variant), indent + "      ")


def _inner_schema(member: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a member's items or values if it has any; otherwise its own."""
    held: Any = member.get("items", member.get("additionalProperties"))
    return held if isinstance(held, dict) else member


def _variant_name(variant: dict[str, Any]) -> str:
    """Return the name of a variant: its constant ``type`` if it has one, otherwise its JSON type."""
    kind = variant.get("properties", {}).get("type", {}).get("const")
    return f"type {kind}" if kind else _type_text(variant)


def _without_kind(variant: dict[str, Any]) -> dict[str, Any]:
    properties = {
        name: one for name, one in variant.get("properties", {}).items() if name != "type" or "const" not in one
    }
    return {**variant, "properties": properties}


def _type_text(member: dict[str, Any]) -> str:
    if "enum" in member:
        return " | ".join(map(str, member["enum"]))
    if "oneOf" in member:
        kinds = [one.get("properties", {}).get("type", {}).get("const") for one in member["oneOf"]]
        return f"object ({', '.join(kinds)})" if all(kinds) else "any"
    kinds: Any = member.get("type", "any")
    text = " or ".join(kinds) if isinstance(kinds, list) else str(kinds)
    items = _inner_schema(member)
    if text == "array" and items is not member and "type" in items:
        return f"array of {_type_text(items)}"
    return f"{text} ({member['format']})" if "format" in member else text


def _first_sentence(description: str) -> str:
    first = description.split(". ")[0].rstrip(".")
    return first if len(first) <= SENTENCE_CHARS_MAX else first[: SENTENCE_CHARS_MAX - 1] + "…"


def _wrap_text(text: str, indent: str = "") -> Iterator[str]:
    import textwrap

    yield from textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
