"""The contract of the ``nats`` provider: a request on a NATS subject, or to a NATS service."""

from callboard.languages.flow.contracts.contract_parts import (
    DURATION,
    NAME,
    TEXT,
    TEXTS,
    define_provider,
    describe,
    members,
)

NATS = define_provider(
    "nats",
    "Nats",
    "Sends a request on a NATS subject and waits for the reply. The value is the reply, parsed if it is JSON. The "
    "header Idempotency-Key is the same each time that a call is executed.",
    parameters=members(
        {
            "subject": describe(NAME, "The subject of the request."),
            "service": describe(NAME, "A NATS service, found by its name, instead of a subject."),
            "endpoint": describe(NAME, "The service's endpoint; not needed if it has only one."),
            "payload": {
                "description": "The request: a string as it is, all else in JSON; by default the call's input."
            },
            "headers": describe(TEXTS, "Headers of the request."),
            "timeout": describe(DURATION, "The longest wait for the reply.", default="PT30S"),
        },
        oneOf=[{"required": ["subject"]}, {"required": ["service"]}],
        dependentRequired={"endpoint": ["service"]},
    ),
    metadata=members(
        {
            "subject": describe(TEXT, "The subject that was asked."),
            "headers": describe(TEXTS, "Headers of the reply."),
            "service": describe(
                members({"name": TEXT, "id": TEXT, "version": TEXT}), "The service that was found by its name."
            ),
        }
    ),
    failures={
        "NoResponders": "No one listens on the subject, or the service does not exist. Retryable.",
        "Timeout": "No reply within the timeout; of type timeout. Retryable.",
        "ServiceError": "The reply is an error of a NATS service; details has code, description and body.",
        "UnknownEndpoint": "The service has no such endpoint, or several and none was named.",
        "PayloadTooLarge": "The request does not fit one message.",
        "Refused": "The subject is the server's or a Callboard runtime's, or the worker does not permit it.",
        "InvalidRequest": "The subject or a header cannot be sent.",
        "ConnectionFailed": "The worker is not connected. Retryable.",
    },
    final=("Refused", "InvalidRequest", "PayloadTooLarge"),
)
