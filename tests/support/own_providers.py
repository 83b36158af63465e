"""Providers and middlewares, as users would write them."""

from typing import Any, ClassVar

from callboard.actors.providers.provider import ActionFailed, ActionRequest, Answer, Passed, Request, failure, success

SCHEMA = "https://mwl.dev/v0.1/provider/schema.json"

SHOUT = "mwl:provider.call/acme/shout/v1"
CACHE = "mwl:provider.middleware/acme/cache/v1"
NOTIFY = "mwl:provider.middleware/acme/notify/v1"
CIPHER = "mwl:provider.middleware/acme/cipher/v1"

PHASES = ("onEntry", "onSuccess", "onFailure", "onAlways")


def action(kind: str, **parameters: Any) -> dict[str, Any]:
    """A phase's contract with optional parameters."""
    schema = {"type": "object", "properties": parameters}
    return {"action": {"kind": kind, "description": f"A {kind}."}, "parameters": schema}


def middleware(uri: str, prefix: str, phases: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A middleware's document."""
    return {
        "$schema": SCHEMA,
        "uri": uri,
        "codePrefix": prefix,
        "description": f"The {prefix} middleware.",
        "attachment": ["step", "flow"],
        "phases": phases,
        "failureCatalog": {"closed": [f"Provider.Middleware.{prefix}.Failed"], "open": []},
        **more,
    }


class Shout:
    """A call provider that answers in capitals."""

    document: ClassVar[dict[str, Any]] = {
        "$schema": SCHEMA,
        "uri": SHOUT,
        "codePrefix": "Shout",
        "description": "Says it louder.",
        "parameters": {
            "type": "object",
            "properties": {"times": {"type": "integer", "minimum": 1}},
            "required": ["times"],
        },
        "metadata": {"type": "object", "properties": {"letters": {"type": "integer"}}},
        "failureCatalog": {"closed": ["Provider.Call.Shout.Voiceless"], "open": []},
    }

    async def execute(self, request: Request) -> Answer:
        if not isinstance(request.input, str):
            return failure("Provider.Call.Shout.Voiceless", "nothing to say")
        said = request.input.upper() * int(request.arguments["times"])
        return success(said, letters=len(said), secret="not declared")


class Whisper(Shout):
    """A call provider that is a plain function, and answers with a plain Result."""

    document: ClassVar[dict[str, Any]] = {
        **Shout.document,
        "uri": "mwl:provider.call/acme/whisper/v1",
        "codePrefix": "Whisper",
    }

    def execute(self, request: Request) -> Any:
        return {"type": "success", "value": str(request.input).lower()}


class Cache:
    """A control middleware: serves values that it has, keeps those that it sees; fails on request."""

    document = middleware(
        CACHE,
        "Cache",
        {
            "onEntry": action("control", key={"type": "string"}, broken={"type": "boolean"}),
            "onSuccess": action("control", replace={}, fail={"type": "boolean"}),
            "onFailure": action("control", code={"type": "string"}, rescue={"type": "boolean"}),
        },
        metadata={"type": "object", "properties": {"hit": {"type": "boolean"}}},
    )
    kept: ClassVar[dict[str, Any]] = {"k": "from the cache"}

    async def act(self, phase: str, request: ActionRequest) -> Answer | Passed | None:
        arguments = request.arguments
        match phase:
            case "onEntry":
                if arguments.get("broken"):
                    raise ActionFailed("Provider.Middleware.Cache.Failed", "the cache is broken", retryable=True)
                if arguments.get("key") in self.kept:
                    return success(self.kept[arguments["key"]], hit=True)
                return Passed({"hit": False, "enteredAt": "never", "other": 1})
            case "onSuccess":
                if arguments.get("fail"):
                    return failure("Provider.Middleware.Cache.Failed", "no good")
                return success(arguments["replace"]) if "replace" in arguments else None
            case _:
                if arguments.get("rescue"):
                    return success("saved")
                return failure(arguments["code"], "as it was told") if "code" in arguments else None


class Notify:
    """A side-effect middleware that keeps its inputs."""

    document = middleware(
        NOTIFY,
        "Notify",
        {name: action("side-effect", fail={"type": "boolean"}) for name in PHASES},
    )
    heard: ClassVar[list[Any]] = []

    async def act(self, phase: str, request: ActionRequest) -> Answer | None:
        self.heard.append((phase, request.input, (request.result or {}).get("type"), request.idempotency_key))
        if request.arguments.get("fail"):
            return failure("Provider.Middleware.Notify.Failed", f"nobody heard {phase}")
        return success("of no account")


class Cipher:
    """A transform middleware: turns texts round, and failures into vaguer ones."""

    document = middleware(
        CIPHER, "Cipher", {name: action("transform") for name in ("onEntry", "onSuccess", "onFailure")}
    )

    async def act(self, phase: str, request: ActionRequest) -> Answer | None:
        match phase, request.result:
            case "onEntry", _:
                return success(str(request.input)[::-1])
            case "onSuccess", {"value": str(text)}:
                return success(text[::-1])
            case "onFailure", {"code": "Mine.Nonsense"}:
                return success("no envelope")
            case "onFailure", {"type": type}:
                return success({"type": type, "code": "Acme.Hidden"})
            case _:
                raise ValueError(f"what is {request.result}?")


NO_CLASS = {"document": Shout.document}


class Reserved(Shout):
    document: ClassVar[dict[str, Any]] = {**Shout.document, "uri": "mwl:provider.call/callboard/http/v1"}


class Twin(Shout):
    """Says that it is another one."""


class Mute:
    document: ClassVar[dict[str, Any]] = {**Shout.document, "uri": "mwl:provider.call/acme/mute/v1"}


class Structural:
    document = middleware(
        "mwl:provider.middleware/acme/structural/v1",
        "Structural",
        {"onAlways": {**action("side-effect", call={"type": "object"}), "structural": ["call"]}},
    )

    async def act(self, phase: str, request: ActionRequest) -> None:
        return None
