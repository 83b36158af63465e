"""The contract of the ``definition`` provider: a run of another definition."""

from callboard.languages.flow.contracts.contract_parts import NAME, TEXT, define_provider, describe, members

DEFINITION = define_provider(
    "definition",
    "Definition",
    "Runs another definition, in any language, as a child run, and waits for its end. The value is its output.",
    parameters=members(
        {
            "name": describe(NAME, "A registered definition."),
            "hash": describe(NAME, "A registered definition, by its hash."),
            "file": describe(NAME, "A definition's file, by its path from this one; it travels with the run."),
            "source": describe(NAME, "The definition itself, as text."),
            "language": describe(NAME, "The language of file or source; by default it is recognised."),
            "arguments": describe({"type": "object"}, "Arguments of the run."),
            "options": describe({"type": "object"}, "Options that its language takes."),
            "model": describe(NAME, "The run's default model."),
        },
        oneOf=[{"required": ["name"]}, {"required": ["hash"]}, {"required": ["file"]}, {"required": ["source"]}],
    ),
    metadata=members(
        {
            "status": describe(TEXT, "How the run ended: completed, failed, cancelled or expired."),
            "results": {"description": "The run's results, as its language has them."},
        }
    ),
    failures={
        "Failed": "The run failed; its own failure is in previous.",
        "Rejected": "The run was refused; details.problems says why.",
        "Cancelled": "The run was cancelled from outside; of type cancellation.",
        "Expired": "The run expired while it waited; of type timeout.",
    },
)
