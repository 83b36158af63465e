"""The contract of the ``human`` provider: a question to a person."""

from callboard.languages.flow.contracts.contract_parts import (
    COUNT,
    DURATION,
    NAME,
    TEXT,
    define_provider,
    describe,
    members,
)

HUMAN = define_provider(
    "human",
    "Human",
    "Asks a person and waits for the answer; the run is parked in the meantime. The value is the answer: a text, true "
    "or false, or the selected option.",
    parameters=members(
        {
            "question": describe(NAME, "The text of the question."),
            "type": describe({"type": "string", "enum": ["input", "confirm", "select"]}, "The kind.", default="input"),
            "options": {
                "type": "array",
                "minItems": 1,
                "description": "The options: values, or objects with value and label.",
            },
            "channel": describe(NAME, "Where to ask, for programs that serve channels."),
            "data": {"description": "Data that is shown with the question; by default the call's input."},
            "timeout": describe(DURATION, "The longest wait for an answer; without it, the wait has no limit."),
        },
        "question",
        **{
            "if": {"properties": {"type": {"const": "select"}}, "required": ["type"]},
            "then": {"required": ["options"]},
        },
    ),
    metadata=members(
        {
            "by": describe(TEXT, "The person who answered."),
            "channel": describe(TEXT, "The channel of the answer."),
            "data": {"description": "Additional data that came with the answer."},
            "answers": describe(COUNT, "How many answers there were; all but the last did not fit the question."),
        }
    ),
    failures={"Timeout": "No answer arrived in time; of type timeout."},
)
