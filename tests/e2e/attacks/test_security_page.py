"""SECURITY.md states the limits of a tenant that may start runs; each of its sentences has a test."""

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
        "test_tenants:test_a_copy_of_a_configured_secret_is_reserved",
    ),
    "No run gets a stored credential in a header, a program or a Python tool.": (
        "test_secrets:test_no_run_gets_a_stored_credential",
    ),
    "No refusal says whether the variable that it names is set.": (
        "test_secrets:test_a_refusal_does_not_reveal_whether_a_variable_is_set",
    ),
    "No start says where the service of a connector is.": (
        "test_secrets:test_a_start_cannot_change_the_address_of_a_connector",
    ),
    "The secret of a connector goes in headers only to the servers of its service.": (
        "test_secrets:test_no_header_carries_the_secret_of_a_connector_elsewhere",
        "test_secrets:test_the_secret_of_a_connector_goes_to_the_address_of_the_worker_only",
        "test_secrets:test_every_variable_of_a_connector_is_classified",
    ),
    "The tools of a shipped skill send the secret only to the address in the worker's environment.": (
        "test_secrets:test_a_connector_without_an_address_in_the_source_uses_that_of_the_worker",
        "test_secrets:test_a_redirect_carries_no_secret_of_a_connector_to_another_server",
    ),
    "The tools of a shipped skill do not send the secret of one connector to the service of another.": (
        "test_secrets:test_a_connector_does_not_send_the_secret_of_another",
    ),
    "No redirect of an MCP server takes a header to another server.": (
        "test_addresses:test_a_redirect_carries_no_header_to_another_server",
    ),
    "No run connects to a link-local, multicast or metadata address by an MCP server, in whatever form the address is "
    "written.": (
        "test_addresses:test_no_mcp_server_is_at_a_link_local_address_even_for_a_single_user",
        "test_addresses:test_a_forbidden_address_is_refused_even_if_allowed",
        "test_addresses:test_a_numeric_host_is_checked_as_its_address",
    ),
    "No run connects to a link-local or metadata address by an HTTP request, even if the operator allows the host.": (
        "test_addresses:test_an_http_request_reaches_no_metadata_service_even_at_an_allowed_host",
    ),
    "A name whose address changes after it was checked leads to no other address.": (
        "test_addresses:test_a_name_that_changes_its_address_is_refused",
    ),
    "The path of a Python tool does not lead through a module into a module outside of it.": (
        "test_secrets:test_a_function_path_through_an_imported_module_is_refused",
    ),
    "A list that permits functions of Callboard permits the tools of its skills alone.": (
        "test_secrets:test_a_pattern_for_shipped_tools_permits_no_other_function_of_callboard",
    ),
    "A run shows which variable its MCP servers and Python tools were lent, and for which host or program, and "
    "never the value.": (
        "test_secrets:test_a_single_user_may_lend_other_variables_and_the_run_records_it",
        "test_tenants:test_programs_get_the_variables_of_the_tenant_only",
    ),
    "A run uses the variables that the operator names for its tenant, and no others.": (
        "test_tenants:test_a_variable_is_sent_to_the_hosts_of_the_tenant_only",
        "test_tenants:test_the_star_names_the_variables_of_other_tenants",
    ),
    "The value of a variable goes in headers to the hosts that the operator names for it, and to no others.": (
        "test_tenants:test_a_variable_is_sent_to_the_hosts_of_the_tenant_only",
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
        "test_tenants:test_programs_get_the_variables_of_the_tenant_only",
        "test_tenants:test_the_star_names_the_variables_of_other_tenants",
    ),
    "Skills and services act with a credential of the worker if the operator names it for the tenant.": (
        "test_tenants:test_a_connector_uses_a_secret_that_is_named_for_the_tenant",
    ),
    "The values of the variables that the operator names are kept out of the log.": (
        "test_tenants:test_programs_get_the_variables_of_the_tenant_only",
    ),
    "A run reaches an MCP server at a loopback or private address only if the operator allows the host.": (
        "test_addresses:test_a_shared_server_reaches_no_private_address_unless_the_operator_allows_it",
        "test_addresses:test_a_private_address_needs_a_single_user_or_a_permission",
    ),
    "A server whose workers sign in with an nkey is shared without any setting.": (
        "test_tenants:test_a_tenant_with_an_account_gets_no_secret",
        "test_tenants:test_a_server_is_shared_by_settings_tenants_or_credentials",
    ),
    "A run uses every other variable of the worker, and the run shows where it went.": (
        "test_secrets:test_a_single_user_may_lend_other_variables_and_the_run_records_it",
    ),
}
"""The tests that prove each sentence, as ``module:function`` of this package."""


def sentences() -> list[str]:
    """Return the sentences of the section, one for each item of its lists."""
    section = PAGE.read_text(encoding="utf-8").partition(SECTION)[2].partition("\n## ")[0].partition(LIMITS)[0]
    items = re.findall(r"^- (.*(?:\n  .*)*)", section, re.M)
    return [" ".join(item.split()) for item in items]


def test_sentences_and_proofs_correspond() -> None:
    assert sorted(sentences()) == sorted(PROOFS)
    assert len(sentences()) == len(set(sentences()))


def test_a_sentence_states_one_fact() -> None:
    assert [one for one in sentences() if one.count(".") != 1 or not one.endswith(".")] == []


@pytest.mark.parametrize("sentence", PROOFS)
def test_the_proofs_of_a_sentence_exist(sentence: str) -> None:
    for proof in PROOFS[sentence]:
        module, _, function = proof.partition(":")
        assert callable(getattr(import_module(f"tests.e2e.attacks.{module}"), function))
