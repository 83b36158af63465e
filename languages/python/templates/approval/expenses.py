"""A human approval: expenses above a limit are paid only if a person agrees within three days."""

from pydantic import BaseModel

from callboard import ask, step, step_context, workflow

LIMIT_CENTS = 5_000
"""Expenses up to this amount need no approval."""


class Expense(BaseModel):
    """An expense that somebody has handed in."""

    what: str
    cents: int


class Decision(BaseModel):
    """The answer of the person who approves."""

    approved: bool
    why: str = ""


@step(retries=3, timeout="30s")
async def pay(expense: Expense) -> str:
    """Pay an expense. The bank ignores a second payment with the same key, after a crash for example."""
    return f"paid {expense.cents} cents for {expense.what}, key {step_context().idempotency_key[:8]}"


@workflow
async def expenses(expense: Expense) -> dict[str, str]:
    """Pay an expense, if need be after a person has approved it."""
    decision = Decision(approved=True, why="small")
    if expense.cents > LIMIT_CENTS:
        question = f"Pay {expense.cents / 100:.2f} for {expense.what}?"
        try:
            decision = await ask(question, Decision, to="accounting", data=expense, timeout="3d")
        except TimeoutError:
            decision = Decision(approved=False, why="nobody answered in time")
    if not decision.approved:
        return {"status": "rejected", "why": decision.why}
    return {"status": "paid", "receipt": await pay(expense)}
