"""The contracts of all providers that Callboard ships, including those of the specification."""

from collections.abc import Mapping
from types import MappingProxyType

from callboard.languages.flow.contracts.contract_parts import Shipped
from callboard.languages.flow.contracts.definition import DEFINITION
from callboard.languages.flow.contracts.http import HTTP
from callboard.languages.flow.contracts.human import HUMAN
from callboard.languages.flow.contracts.model import MODEL
from callboard.languages.flow.contracts.nats import NATS
from callboard.languages.flow.contracts.process import PROCESS
from callboard.languages.flow.contracts.signal import SIGNAL
from callboard.languages.flow.contracts.tool import TOOL
from callboard.languages.flow.specified_providers import SPECIFIED
from callboard.languages.provider_contracts import Contract

OURS: tuple[Shipped, ...] = (HTTP, MODEL, TOOL, NATS, DEFINITION, HUMAN, SIGNAL, PROCESS)

CONTRACTS: Mapping[str, Contract] = MappingProxyType({**SPECIFIED, **{one.contract.uri: one.contract for one in OURS}})

FAILURES: Mapping[str, str] = MappingProxyType(
    {
        "Provider.Middleware.Retry.Exhausted": "The matching policy has no attempts left; previous is the last.",
        "Provider.Middleware.Timeout.Exceeded": "What it wraps took longer than the duration; of type timeout.",
        **{code: when for one in OURS for code, when in one.failures.items()},
    }
)
"""Descriptions of when each failure of these providers occurs, by code."""

FINAL: Mapping[str, tuple[str, ...]] = MappingProxyType({one.contract.uri: one.final for one in OURS})
"""The codes of failures after which a retry cannot succeed, by the provider's URI."""

NEED_A_MODEL = frozenset({MODEL.contract.uri})
"""Providers that may need the run's default model."""
