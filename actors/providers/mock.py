"""The mock provider: its Result depends on its arguments alone. The interpreter waits for its delay."""

from callboard.actors.providers.provider import Answer, Request

MOCK = "mwl:provider.call/mwl/mock/v1"


class Mock:
    """Takes the place of any provider."""

    async def execute(self, request: Request) -> Answer:
        arguments = request.arguments
        failure = arguments.get("failure")
        if failure is not None:
            result = {"type": "error", **failure}
        else:
            result = {"type": "success", "value": arguments.get("value", request.input)}
        return Answer(result, arguments.get("metadata", {}))
