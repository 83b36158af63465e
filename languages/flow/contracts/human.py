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
    "Asks a person and waits for the answer, however long it takes: the run is parked meanwhile. The value "
    "is the answer: a text, true or false, or the option selected.",
    parameters=members(
        {
            "question": describe(NAME, "What is asked."),
            "type": describe({"type": "string", "enum": ["input", "confirm", "select"]}, "The kind.", default="input"),
            "options": {
                "type": "array",
                "minItems": 1,
                "description": "What can be selected: values, or objects with value and label.",
            },
            "channel": describe(NAME, "Where to ask, for those who serve channels."),
            "data": {"description": "What is shown beside the question; by default the call's input."},
            "timeout": describe(DURATION, "The longest wait for an answer; without it there is no end."),
        },
        "question",
        **{
            "if": {"properties": {"type": {"const": "select"}}, "required": ["type"]},
            "then": {"required": ["options"]},
        },
    ),
    metadata=members(
        {
            "by": describe(TEXT, "Who answered."),
            "channel": describe(TEXT, "Where the answer came from."),
            "data": {"description": "What came with the answer beyond it."},
            "answers": describe(COUNT, "How many answers there were; those that made no sense were refused."),
        }
    ),
    failures={"Timeout": "Nobody answered in time; of type timeout."},
)
