"""LangGraph: existing graphs in workflows. `durable` makes a compiled graph one whose calls are recorded."""

from callboard.adapters.versions import probe, require

require("langgraph", extra="langgraph", oldest="1.2.0", newest="1.2.24")
probe(
    "langgraph",
    "langgraph",
    *(
        f"langgraph._internal._constants:{name}"
        for name in ("CONF", "CONFIG_KEY_CALL", "CONFIG_KEY_RUNTIME", "CONFIG_KEY_SCRATCHPAD", "CONFIG_KEY_SEND")
    ),
    "langgraph._internal._scratchpad:PregelScratchpad.get_null_resume",
    "langgraph.errors:GraphInterrupt",
    "langchain_core.callbacks.manager:_run_coros",
    "langchain_core.language_models.chat_models:BaseChatModel._agenerate_with_cache",
    "langchain_core.language_models.chat_models:BaseChatModel._generate_with_cache",
    "langchain_core.runnables.config:var_child_runnable_config",
    "langchain_core.tools:BaseTool._arun",
    "langchain_core.tools:BaseTool._filter_injected_args",
    "langchain_core.tools.base:_get_runnable_config_param",
    "langchain_core.tracers._streaming:_StreamingCallbackHandler",
)

from callboard.adapters.langgraph.graphs import durable  # noqa: E402

__all__ = ["durable"]
