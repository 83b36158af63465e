"""The providers of the flow language, as the rest of the house asks of them."""

from callboard.languages.flow.provider_document import provider_problems
from callboard.languages.flow.published_contracts import document_of
from callboard.languages.flow.shipped import CONTRACTS, FAILURES
from callboard.languages.flow.specified import SPECIFIED
from callboard.languages.flow.structure import problems
from callboard.languages.provider_contracts import ProviderContracts

PROVIDER_CONTRACTS = ProviderContracts(CONTRACTS, SPECIFIED, FAILURES, provider_problems, problems, document_of)
