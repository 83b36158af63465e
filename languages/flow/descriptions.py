"""What editors show of each member of a flow: by ``Owner.member``, or by ``member`` for all owners."""

from collections.abc import Mapping

DESCRIPTIONS: Mapping[str, str] = {
    "$schema": "The version of the language: https://mwl.dev/v0.1/flow/schema.json.",
    "steps": "The steps, by id.",
    "parameters.type": "Parameters are an object.",
    "onEntry": "What happens before it begins.",
    "onSuccess": "What happens when it succeeds.",
    "onFailure": "What happens when it fails.",
    "onAlways": "What happens when it ends, in any case.",
    "with": "The arguments of the provider.",
    "type": "The type of the result.",
    "message": "What went wrong, in words.",
    "retryable": "Whether another try may succeed.",
    "action": "What the step does: Call, Gather, Match, Pass, Sleep, Return or Raise.",
    "call": "The flow or provider that is called.",
    "calls": "Several calls, made at the same time.",
    "middleware": "Providers that wrap the step, such as retry and timeout.",
    "completion": "When the Gather is complete.",
    "concurrency": "How many calls may be under way at once.",
    "successes": "How many calls have to succeed.",
    "wait": "Whether the other calls are waited for.",
    "cases": "The conditions, in their order, each with the next step.",
    "MatchStep.default": "What is next if no case holds.",
    "result": "The failure that is raised.",
}
