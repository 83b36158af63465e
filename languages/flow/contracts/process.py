"""The contract of the ``process`` provider: a program, or one in a container, on the worker's machine."""

from callboard.languages.flow.contracts.contract_parts import (
    DURATION,
    NAME,
    TEXT,
    TEXTS,
    define_provider,
    describe,
    members,
)

PROCESS = define_provider(
    "process",
    "Process",
    "Runs a program on the worker's machine, if the worker allows it: the call's input in JSON is its standard input, "
    "an empty folder its working directory. The value is {exit_code, stdout, stderr}.",
    parameters=members(
        {
            "argv": {
                "type": "array",
                "minItems": 1,
                "items": TEXT,
                "description": "The program and its arguments. No shell reads them.",
            },
            "image": describe(NAME, "A container image to run it in."),
            "stdin": describe(TEXT, "The standard input, instead of the call's input."),
            "env": describe(TEXTS, "Variables that the program gets beyond those that the worker lends."),
            "timeout": describe(DURATION, "The longest time; then it is killed with all it started.", default="PT60S"),
            "output": describe(
                {"type": "string", "enum": ["text", "json"]}, "How stdout is read into the value.", default="text"
            ),
            "expect": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "integer"},
                "default": [0],
                "description": "Exit codes that are a success.",
            },
        },
        "argv",
    ),
    metadata=members(
        {
            "exit_code": describe({"type": "integer"}, "The exit code; minus the number of a signal that killed it."),
            "duration_ms": describe({"type": "number"}, "How long it ran."),
        }
    ),
    failures={
        "NotAllowed": "The worker runs no such program or image; details.allowed lists what it runs.",
        "NotFound": "There is no such program.",
        "Failed": "It ended with another exit code than expected; details has exit_code, stdout and stderr.",
        "Timeout": "It was killed when the timeout had passed; of type timeout.",
        "OutputTooLarge": "It wrote more than the worker's limit.",
        "InvalidOutput": "Its standard output is not JSON, although output is json.",
    },
    final=("NotAllowed", "NotFound"),
)
