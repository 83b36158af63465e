"""The tracing of the SDK: none in workflows, whose log is the trace; as before everywhere else.

The SDK's tracing starts a thread and sends spans to a service, which a workflow must not do. `install` puts a trace
provider in front of the SDK's, by `agents.set_trace_provider`.
"""

from typing import Any

from agents import set_trace_provider
from agents.tracing import get_trace_provider
from agents.tracing.config import TracingConfig
from agents.tracing.processor_interface import TracingProcessor
from agents.tracing.provider import TraceProvider
from agents.tracing.span_data import GenerationSpanData, ResponseSpanData
from agents.tracing.spans import Span, TSpanData
from agents.tracing.traces import Trace

from callboard.languages.python.errors import NotInWorkflow
from callboard.languages.python.loop import current_loop


class OutsideWorkflows(TraceProvider):
    """A trace provider whose traces and spans are disabled in workflows; all else is that of the wrapped provider.

    It also finds runs of the SDK in workflows that are not durable.
    """

    def __init__(self, provider: TraceProvider) -> None:
        self._provider = provider

    def create_trace(
        self,
        name: str,
        trace_id: str | None = None,
        group_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        disabled: bool = False,
        tracing: TracingConfig | None = None,
    ) -> Trace:
        disabled = disabled or current_loop() is not None
        return self._provider.create_trace(name, trace_id, group_id, metadata, disabled, tracing)

    def create_span(
        self,
        span_data: TSpanData,
        span_id: str | None = None,
        parent: Trace | Span[Any] | None = None,
        disabled: bool = False,
    ) -> Span[TSpanData]:
        inside = current_loop() is not None
        if inside and isinstance(span_data, GenerationSpanData | ResponseSpanData):
            # The models of the SDK open such a span for each request. Those of a durable run are asked in the worker.
            raise NotInWorkflow(
                "an agent asks its model in a workflow, where nothing records it: pass "
                "run_config=callboard_run_config() to this Runner.run"
            )
        return self._provider.create_span(span_data, span_id, parent, disabled or inside)

    def register_processor(self, processor: TracingProcessor) -> None:
        self._provider.register_processor(processor)

    def set_processors(self, processors: list[TracingProcessor]) -> None:
        self._provider.set_processors(processors)

    def get_current_trace(self) -> Trace | None:
        return self._provider.get_current_trace()

    def get_current_span(self) -> Span[Any] | None:
        return self._provider.get_current_span()

    def set_disabled(self, disabled: bool) -> None:
        self._provider.set_disabled(disabled)

    def time_iso(self) -> str:
        return self._provider.time_iso()

    def gen_trace_id(self) -> str:
        return self._provider.gen_trace_id()

    def gen_span_id(self) -> str:
        return self._provider.gen_span_id()

    def gen_group_id(self) -> str:
        return self._provider.gen_group_id()

    def force_flush(self) -> None:
        self._provider.force_flush()

    def shutdown(self) -> None:
        self._provider.shutdown()


def install() -> None:
    """Disable the SDK's tracing in workflows, unless this is done already."""
    provider = get_trace_provider()
    if not isinstance(provider, OutsideWorkflows):
        set_trace_provider(OutsideWorkflows(provider))
