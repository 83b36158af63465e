"""SECURITY.md says what a tenant who may start runs can and cannot do; each of its sentences has a test."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "SECURITY.md"

SECTION = "## A tenant's runs and the worker's secrets"
LIMITS = "These are limits:"

PROOFS: dict[str, tuple[str, ...]] = {
    "No run gets a variable of the runtime or of a model provider in a header, in any language.": (
        "test_secrets:test_no_header_has_a_secret_of_the_runtime",
        "test_secrets:test_every_variable_of_a_provider_of_models_is_reserved",
    ),
    "No program that a run starts gets a variable of the runtime or of a model provider.": (
        "test_secrets:test_no_program_gets_a_secret_of_the_runtime",
        "test_secrets:test_no_program_of_a_flow_gets_a_secret_of_the_runtime_even_if_the_operator_lists_it",
    ),
    "No Python tool gets a variable of the runtime or of a model provider.": (
        "test_secrets:test_no_process_of_python_tools_has_a_secret_of_the_runtime",
    ),
    "No run gets a variable that repeats a secret of the worker's configuration.": (
        "test_tenants:test_a_copy_of_a_secret_of_the_configuration_is_reserved_too",
    ),
    "No run gets a stored credential in a header, a program or a Python tool.": (
        "test_secrets:test_no_run_gets_a_stored_credential",
    ),
    "No refusal says whether the variable that it names is set.": (
        "test_secrets:test_the_refusal_names_the_variable_and_not_whether_it_is_set",
    ),
    "No start says where the service of a connector is.": (
        "test_secrets:test_a_start_does_not_say_where_a_connector_is",
    ),
    "The secret of a connector goes in headers only to the servers of its service.": (
        "test_secrets:test_no_header_takes_the_secret_of_a_connector_elsewhere",
        "test_secrets:test_the_secret_of_a_connector_goes_to_where_the_worker_says_it_is",
        "test_secrets:test_every_variable_that_a_connector_reads_is_a_secret_an_address_or_neither_on_purpose",
    ),
    "The tools of a shipped skill send the secret only to the address in the worker's environment.": (
        "test_secrets:test_a_connector_keeps_to_its_address_where_a_source_leaves_that_out",
        "test_secrets:test_a_redirect_takes_no_secret_of_a_connector_to_another_server",
    ),
    "The tools of a shipped skill do not send the secret of one connector to the service of another.": (
        "test_secrets:test_a_connector_does_not_send_the_secret_of_another",
    ),
    "No redirect of an MCP server takes a header to another server.": (
        "test_addresses:test_a_redirect_takes_no_header_to_another_server",
    ),
    "No run connects to a link-local, multicast or metadata address by an MCP server, in whatever form the address is "
    "written.": (
        "test_addresses:test_no_mcp_server_is_at_a_link_local_address_even_for_a_single_user",
        "test_addresses:test_an_address_is_refused_whatever_is_allowed",
        "test_addresses:test_a_number_is_the_address_that_it_leads_to",
    ),
    "No run connects to a link-local or metadata address by an HTTP request, even if the operator allows the host.": (
        "test_addresses:test_an_http_request_reaches_no_metadata_service_even_at_an_allowed_host",
    ),
    "A name whose address changes after it was checked leads to no other address.": (
        "test_addresses:test_the_address_that_was_checked_is_connected_to",
    ),
    "The path of a Python tool does not lead through a module into a module outside of it.": (
        "test_secrets:test_a_path_does_not_lead_through_a_module_into_another",
    ),
    "A list that permits functions of Callboard permits the tools of its skills alone.": (
        "test_secrets:test_what_permits_the_shipped_tools_permits_nothing_else_of_callboard",
    ),
    "A run shows which variable its MCP servers and Python tools were lent, and for which host or program, and "
    "never the value.": (
        "test_secrets:test_a_single_user_uses_other_variables_and_the_run_shows_where_they_went",
        "test_tenants:test_programs_get_the_variables_of_the_tenant_alone",
    ),
    "A run uses the variables that the operator names for its tenant, and no others.": (
        "test_tenants:test_a_variable_goes_to_the_hosts_that_are_named_for_the_tenant",
        "test_tenants:test_every_other_tenant_has_what_the_star_names",
    ),
    "The value of a variable goes in headers to the hosts that the operator names for it, and to no others.": (
        "test_tenants:test_a_variable_goes_to_the_hosts_that_are_named_for_the_tenant",
    ),
    "The value of a variable goes over https, or to a host that the operator allows.": (
        "test_tenants:test_a_named_variable_is_not_sent_unencrypted_to_a_host_that_is_not_allowed",
    ),
    "The operator cannot name a variable of the runtime or of a model provider by mistake.": (
        "test_tenants:test_the_operator_cannot_name_a_variable_of_the_runtime",
    ),
    "Programs and Python functions run if the operator lists them, apart from the tools of shipped skills.": (
        "test_tenants:test_unset_lists_permit_the_shipped_tools_and_no_program",
    ),
    "The processes of Python tools have common variables such as `PATH` and those of the tenant, and no others.": (
        "test_tenants:test_programs_get_the_variables_of_the_tenant_alone",
        "test_tenants:test_every_other_tenant_has_what_the_star_names",
    ),
    "Skills and services act with a credential of the worker if the operator names it for the tenant.": (
        "test_tenants:test_a_connector_acts_with_a_secret_that_is_named_for_the_tenant",
    ),
    "The values of the variables that the operator names are kept out of the log.": (
        "test_tenants:test_programs_get_the_variables_of_the_tenant_alone",
    ),
    "A run reaches an MCP server at a loopback or private address only if the operator allows the host.": (
        "test_addresses:test_a_shared_server_reaches_no_private_address_unless_the_operator_allows_it",
        "test_addresses:test_a_private_address_is_for_a_single_user_or_allowed",
    ),
    "A server whose workers sign in with an nkey is shared without any setting.": (
        "test_tenants:test_a_tenant_with_an_account_takes_nothing_away",
        "test_tenants:test_when_a_server_is_shared",
    ),
    "A run uses every other variable of the worker, and the run shows where it went.": (
        "test_secrets:test_a_single_user_uses_other_variables_and_the_run_shows_where_they_went",
    ),
}
"""The tests that prove each sentence, as ``module:function`` of this package."""


def sentences() -> list[str]:
    """Return the sentences of the section, one for each item of its lists."""
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0].partition(LIMITS)[0]
    items = re.findall(r"^- (.*(?:\n  .*)*)", section, re.M)
    return [" ".join(item.split()) for item in items]


def test_every_sentence_has_its_proof_and_every_proof_its_sentence() -> None:
    assert sorted(sentences()) == sorted(PROOFS)
    assert len(sentences()) == len(set(sentences()))


def test_a_sentence_says_one_fact() -> None:
    assert [one for one in sentences() if one.count(".") != 1 or not one.endswith(".")] == []


@pytest.mark.parametrize("sentence", PROOFS)
def test_the_proofs_of_a_sentence_are_there(sentence: str) -> None:
    for proof in PROOFS[sentence]:
        module, _, function = proof.partition(":")
        assert callable(getattr(import_module(f"tests.e2e.attacks.{module}"), function))
