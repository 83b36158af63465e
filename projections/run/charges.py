"""The cost of each event of a run, at the prices that the reader passes."""

from callboard.bus.effects import ModelUsage, parts, used_by
from callboard.bus.events import ChildEnd, EffectResult, Event, ModelCall, ModelResult, Payload
from callboard.bus.model_names import exact_name, model_name
from callboard.bus.prices import Cost, Prices, list_prices
from callboard.projections.projection import known_payload
from callboard.projections.run.fork_point import ForkPointFold
from callboard.projections.run.intents import Opened, OpenIntents


class Charges:
    """Folds the events of one run, in order, into costs. ``prices`` defaults to the list prices."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._prices = prices or list_prices()
        self._open = OpenIntents()
        self._parting = ForkPointFold()

    def of(self, event: Event) -> Cost | None:
        """Return the cost of the next event; None if it used nothing, or if a fork's origin has paid for it."""
        payload = known_payload(event)
        if payload is None:
            return None
        self._parting.apply(event, payload)
        closed = self._open.apply(event, payload)
        models = used_in(payload, closed)
        if self._parting.is_shared(event) or not any(one.counts for one in models):
            return None
        return self._prices.bill(models, event.time).cost


def used_in(payload: Payload, closed: Opened | None) -> list[ModelUsage]:
    """Return the model usage that an event reports. ``closed`` is the effect that the event closes."""
    match payload:
        case ModelResult():
            return used_by(model_of(payload, closed), payload)
        case EffectResult(model=model) if model:
            return used_by(model, payload)
        case ChildEnd(usage=usage, models=models):
            return parts(usage, models)
        case _:
            return []


def model_of(result: ModelResult, closed: Opened | None) -> str:
    """Return the model of a turn, or the stand-in that answered for it."""
    if closed and isinstance(closed.payload, ModelCall):
        return model_name(closed.payload)
    return exact_name(result.model or result.response_model or "")
