"""The contract of the ``http`` provider: one HTTP request."""

from callboard.languages.flow.contracts.contract_parts import (
    COUNT,
    DURATION,
    NAME,
    TEXT,
    TEXTS,
    define_provider,
    describe,
    members,
)

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")

REDIRECTS_MAX = 10

_SCALAR = {"type": ["string", "number", "boolean", "null"]}

HTTP = define_provider(
    "http",
    "Http",
    "Makes one HTTP request. The value is {status, headers, body}. A body in JSON is parsed; a body that is not text "
    'is in Base64, and {"encoding": "base64"} is added.',
    parameters=members(
        {
            "method": describe({"type": "string", "enum": list(METHODS)}, "The method.", default="GET"),
            "url": describe(NAME, "Where the request goes: an http or https URL."),
            "base": describe(NAME, "The beginning of the URL, to which path is appended."),
            "path": describe(TEXT, "The rest of the URL after base."),
            "query": {
                "type": "object",
                "additionalProperties": {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]},
                "description": "Members of the query beside the URL's; null leaves one out, an array repeats it.",
            },
            "headers": describe(TEXTS, "Headers of the request."),
            "body": describe(TEXT, "The body, as text."),
            "json": {
                "description": "The body, as a value sent in JSON. Without body and json, a POST, PUT or PATCH sends "
                "the call's input in JSON."
            },
            "timeout": describe(
                DURATION, "The longest time the request may take, redirects included.", default="PT30S"
            ),
            "expect": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "anyOf": [
                        {"type": "integer", "minimum": 100, "maximum": 599},
                        {"type": "string", "pattern": "^[1-5]xx$"},
                    ]
                },
                "default": ["2xx"],
                "description": "Statuses that are a success, one by one or by class.",
            },
            "redirects": {
                "type": "integer",
                "minimum": 0,
                "maximum": REDIRECTS_MAX,
                "default": 5,
                "description": "How many redirects are followed; 0 hands the redirect itself back.",
            },
            "max_bytes": {
                "type": "integer",
                "minimum": 1,
                "description": "The largest body of a response, in bytes; the worker's own limit is never exceeded.",
            },
        },
        anyOf=[{"required": ["url"]}, {"required": ["base"]}],
        **{"not": {"anyOf": [{"required": ["url", "base"]}, {"required": ["body", "json"]}]}},
    ),
    metadata=members(
        {
            "status": describe({"type": "integer"}, "The status of the response."),
            "url": describe(TEXT, "Where the response came from, redirects followed."),
            "redirects": describe(COUNT, "How many redirects were followed."),
            "duration_ms": describe({"type": "number"}, "How long it took."),
            "request_id": describe(TEXT, "The response's X-Request-Id."),
        }
    ),
    failures={
        "ConnectionFailed": "The host could not be reached, or the connection broke. Retryable.",
        "Timeout": "No complete response within the timeout; of type timeout. Retryable.",
        "Throttled": "The status is 429. Retryable; details.retryAfter is how long the server asks to wait.",
        "NonSuccessStatus": "The status is not one of those expected. details has status, headers, body; retryable "
        "for 408, 425, 500, 502, 503 and 504.",
        "ResponseTooLarge": "The body exceeds the limit.",
        "TooManyRedirects": "More redirects than are followed.",
        "Refused": "The worker does not connect to this address, unless its configuration has the host in "
        "providers.http.allow_hosts, or not for this redirect.",
        "InvalidRequest": "The URL, a header or the body cannot be sent.",
    },
    final=("Refused", "InvalidRequest", "ResponseTooLarge", "TooManyRedirects"),
)
