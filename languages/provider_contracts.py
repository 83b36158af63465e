"""What a language says of providers: their contracts, and how documents of others are read, checked and written."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from callboard.bus.events import Problem
from callboard.languages.problems import Tree
from callboard.languages.provider_contract import Contract


class ProviderContracts(Struct, frozen=True):
    """``shipped`` are the contracts that every worker keeps, by URI, ``specified`` those URIs that the language itself
    has, ``failures`` when each of their failures occurs, by code.

    ``check_document`` returns what is wrong with a provider's document, ``check_definition`` what a definition does
    against contracts, and ``document_of`` writes a contract as a document.
    """

    shipped: Mapping[str, Contract]
    specified: Collection[str]
    failures: Mapping[str, str]
    check_document: Callable[[Any], list[Problem]]
    check_definition: Callable[[Tree, Mapping[str, Contract]], list[Problem]]
    document_of: Callable[[Contract], dict[str, Any]]
