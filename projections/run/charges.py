"""The cost of each event of a run, at the prices that the reader passes."""

from callboard.bus.effects import ModelUsage, Usage, parts, used_by
from callboard.bus.events import ChildEnd, EffectResult, Event, ModelCall, ModelResult, Payload
from callboard.bus.model_names import exact_name, model_name
from callboard.bus.prices import Cost, Prices, list_prices
from callboard.projections.projection import known_payload
from callboard.projections.run.effects import Opened, OpenIntents
from callboard.projections.run.fork_point import ForkPointFold


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


def usage_in(payload: Payload) -> Usage | None:
    """Return the tokens that an event reports; None if its effect uses no model."""
    match payload:
        case ModelResult(usage=usage) | ChildEnd(usage=usage):
            return usage
        case EffectResult(usage=usage, model=model) if model:
            return usage
        case _:
            return None


def used_in(payload: Payload, closed: Opened | None) -> list[ModelUsage]:
    """Return the model usage that an event reports. ``closed`` is the effect that the event closes."""
    match payload:
        case ModelResult() | EffectResult() if usage_in(payload) is not None:
            return used_by(model_in(payload, closed), payload)
        case ChildEnd(usage=usage, models=models):
            return parts(usage, models)
        case _:
            return []


def model_in(payload: Payload, closed: Opened | None) -> str:
    """Return the model of an outcome, or the stand-in that answered for it; empty for an effect without a model."""
    match payload:
        case ModelResult() if closed and isinstance(closed.payload, ModelCall):
            return model_name(closed.payload)
        case ModelResult(model=model, response_model=answered):
            return exact_name(model or answered or "")
        case EffectResult(model=model):
            return model
        case _:
            return ""
