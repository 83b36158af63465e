"""An agent: a model that looks up orders with tools, and answers a customer."""

from pydantic import BaseModel

from callboard import Agent, step, workflow

ORDERS = {"a1": {"item": "lamp", "status": "shipped"}, "a2": {"item": "desk", "status": "lost"}}


class Reply(BaseModel):
    """What the agent answers: a letter to the customer, and whether a person has to look at it."""

    text: str
    needs_person: bool


@step(retries=2, timeout="10s")
async def find_order(order: str) -> dict[str, str]:
    """Return an order: its item and its status."""
    return ORDERS[order]


@step(retries=2, timeout="10s")
async def delivery_days(item: str) -> int:
    """Return in how many days an item can be delivered."""
    return {"lamp": 2, "desk": 9}[item]


clerk = Agent("clerk", system="Answer customers of a shop. Be brief.", tools=[find_order, delivery_days], output=Reply)


@workflow
async def support(question: str) -> Reply:
    """Answer a question of a customer."""
    answer = await clerk.run(question)
    return answer.output
