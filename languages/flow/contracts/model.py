"""The contract of the ``model`` provider: a turn of an AI model, or a conversation with tools."""

from callboard.languages.approvals.member import SEVERAL_TOOLS
from callboard.languages.flow.contracts.contract_parts import COUNT, NAME, TEXT, define_provider, describe, members
from callboard.languages.flow.contracts.sources import TOOL_SOURCE

TURNS_MAX = 100

SHARE = {"type": "number", "minimum": 0, "maximum": 1}
PENALTY = {"type": "number", "minimum": -2, "maximum": 2}

MODEL = define_provider(
    "model",
    "Model",
    "Has an AI model answer a prompt, with tools if it is given any. The value is the answer's text, or, with a "
    "schema, the structured answer, which fits it.",
    parameters=members(
        {
            "prompt": describe(
                TEXT, "What the model is asked; by default the call's input, in JSON unless it is a string."
            ),
            "system": describe(TEXT, "Instructions that precede the prompt."),
            "schema": describe({"type": "object"}, "A JSON Schema that the answer has to fit."),
            "model": describe(NAME, "The model, as provider:model; by default the run's."),
            "max_turns": describe(
                {"type": "integer", "minimum": 1, "maximum": TURNS_MAX},
                "How many turns a conversation with tools may take; by default 1 without tools, 20 with.",
            ),
            "tools": {"type": "array", "items": TOOL_SOURCE, "description": "Tools that the model may call."},
            "approve": SEVERAL_TOOLS,
            "max_output_tokens": describe({"type": "integer", "minimum": 1}, "The longest answer of a turn."),
            "temperature": describe({"type": "number", "minimum": 0}, "How freely words are chosen."),
            "top_p": describe(SHARE, "Words are chosen among the likeliest, which together have this share."),
            "top_k": describe({"type": "integer", "minimum": 1}, "Words are chosen among this many of the likeliest."),
            "frequency_penalty": describe(PENALTY, "How much words count less the more often they have come."),
            "presence_penalty": describe(PENALTY, "How much words count less once they have come."),
            "stop_sequences": describe(
                {"type": "array", "items": TEXT, "maxItems": 16}, "Texts at which the answer ends."
            ),
            "seed": describe({"type": "integer"}, "The same seed makes the same answer likelier."),
            "safety_settings": describe(
                {"type": "object", "additionalProperties": TEXT},
                "What the provider blocks, by kind of harm, in its own words: harassment to BLOCK_ONLY_HIGH.",
            ),
        }
    ),
    metadata=members(
        {
            "model": describe(TEXT, "The model that answered."),
            "turns": describe(COUNT, "How many turns there were."),
            "usage": describe(
                members(
                    dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), COUNT)
                ),
                "Tokens of all turns together.",
            ),
            "stop_reason": describe(TEXT, "Why the last turn ended."),
            "tools": describe({"type": "array", "items": TEXT}, "Tools that were called, in order."),
        }
    ),
    failures={
        "Timeout": "The model did not answer in time; of type timeout. Retryable.",
        "Throttled": "The provider of the model asks for fewer requests. Retryable.",
        "Unavailable": "The provider of the model is overloaded or cannot be reached. Retryable.",
        "Refused": "The model, or its provider, refuses to answer this.",
        "CutShort": "The answer ended before it was complete; details.stop_reason says why.",
        "OutOfTurns": "The model still wanted to call tools when max_turns was reached.",
        "InvalidOutput": "The answer does not fit the schema. Retryable; details has problems and text.",
        "ToolsUnavailable": "A source of tools could not be opened.",
        "NotDecided": "Nobody decided in time about a call, and the conversation fails then; of type timeout.",
        "Failed": "Any other failure of a turn; details.code is the worker's code for it.",
    },
)
