"""The contract of the ``signal`` provider: waiting for a signal."""

from callboard.languages.flow.contracts.contract_parts import DURATION, NAME, TEXT, define_provider, describe, members

SIGNAL = define_provider(
    "signal",
    "Signal",
    "Waits for a signal to the run. A signal that arrived before the wait counts. The value is its data.",
    parameters=members(
        {
            "name": describe(NAME, "The signal's name."),
            "match": describe({"type": "object"}, "Members that the signal's data must have; others are ignored."),
            "timeout": describe(DURATION, "The longest wait; without it, the wait has no limit."),
        },
        "name",
    ),
    metadata=members(
        {"name": describe(TEXT, "The signal's name."), "by": describe(TEXT, "Who sent it.")},
    ),
    failures={"Timeout": "No matching signal arrived in time; of type timeout."},
)
