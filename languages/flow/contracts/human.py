"""The contract of the ``human`` provider: a question to a person."""

from callboard.languages.flow.contracts.contract_parts import COUNT, DURATION, NAME, TEXT, members, shipped, told

HUMAN = shipped(
    "human",
    "Human",
    "Asks a person and waits for the answer, however long it takes: the run is parked meanwhile. The value "
    "is the answer: a text, true or false, or the option selected.",
    parameters=members(
        {
            "question": told(NAME, "What is asked."),
            "type": told({"type": "string", "enum": ["input", "confirm", "select"]}, "The kind.", default="input"),
            "options": {
                "type": "array",
                "minItems": 1,
                "description": "What can be selected: values, or objects with value and label.",
            },
            "channel": told(NAME, "Where to ask, for those who serve channels."),
            "data": {"description": "What is shown beside the question; by default the call's input."},
            "timeout": told(DURATION, "The longest wait for an answer; without it there is no end."),
        },
        "question",
        **{
            "if": {"properties": {"type": {"const": "select"}}, "required": ["type"]},
            "then": {"required": ["options"]},
        },
    ),
    metadata=members(
        {
            "by": told(TEXT, "Who answered."),
            "channel": told(TEXT, "Where the answer came from."),
            "data": {"description": "What came with the answer beyond it."},
            "answers": told(COUNT, "How many answers there were; those that made no sense were refused."),
        }
    ),
    failures={"Timeout": "Nobody answered in time; of type timeout."},
)
