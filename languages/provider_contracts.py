"""Provider contracts: what a call provider or a middleware accepts, reports and may fail with, as data.

The written form of a contract is the specification's provider document (page *Providers*). `ProviderContracts` is the
port of a language that has providers.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from callboard.bus.events import Problem
from callboard.languages.problems import Tree
from callboard.lib.json_types import JsonSchema

CALL = "mwl:provider.call/"
MIDDLEWARE = "mwl:provider.middleware/"

PHASES = ("onEntry", "onSuccess", "onFailure", "onAlways")
Phase = Literal["onEntry", "onSuccess", "onFailure", "onAlways"]

ActionKind = Literal["side-effect", "control", "transform"]


class PhaseContract(Struct, frozen=True):
    """The action of a middleware at one phase. If ``parameters`` is None, the phase accepts only an empty ``with``."""

    kind: ActionKind
    parameters: JsonSchema | None = None
    structural: tuple[str, ...] = ()
    description: str = ""


class Contract(Struct, frozen=True):
    """A provider's contract.

    ``parameters`` is a call provider's schema of ``with`` (None: no arguments), ``phases`` a middleware's actions.
    ``metadata`` describes what `provider.metadata`, or a middleware's contributed members, may show.
    """

    uri: str
    code_prefix: str
    description: str = ""
    parameters: JsonSchema | None = None
    metadata: JsonSchema | None = None
    closed: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    attachment: tuple[str, ...] = ()
    phases: Mapping[str, PhaseContract] = field(default_factory=dict[str, PhaseContract])

    @property
    def is_call(self) -> bool:
        return self.uri.startswith(CALL)


def contract_of(document: Mapping[str, Any]) -> Contract:
    """Read a provider document that is known to be valid."""
    catalog = document.get("failureCatalog", {})
    phases = {
        name: PhaseContract(
            kind=phase["action"]["kind"],
            parameters=phase.get("parameters"),
            structural=tuple(phase.get("structural", ())),
            description=phase["action"].get("description", ""),
        )
        for name, phase in document.get("phases", {}).items()
    }
    return Contract(
        uri=document["uri"],
        code_prefix=document["codePrefix"],
        description=document.get("description", ""),
        parameters=document.get("parameters"),
        metadata=document.get("metadata"),
        closed=tuple(catalog.get("closed", ())),
        open=tuple(catalog.get("open", ())),
        attachment=tuple(document.get("attachment", ())),
        phases=phases,
    )


class ProviderContracts(Struct, frozen=True):
    """The contracts that a language knows, and its functions on contracts.

    ``shipped`` are the contracts that every worker fulfils, by URI; ``specified`` the URIs that the language's
    specification defines; ``failures`` says when each of their failures occurs, by code. ``check_document`` returns the
    problems of a provider document, ``check_definition`` the problems of a definition under given contracts, and
    ``document_of`` writes a contract as a document.
    """

    shipped: Mapping[str, Contract]
    specified: Collection[str]
    failures: Mapping[str, str]
    check_document: Callable[[Any], list[Problem]]
    check_definition: Callable[[Tree, Mapping[str, Contract]], list[Problem]]
    document_of: Callable[[Contract], dict[str, Any]]
