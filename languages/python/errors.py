"""The exceptions of workflows: failures of steps, children and models, and forbidden operations."""

from typing import Any

from callboard.bus.effects import Failure
from callboard.lib.json_types import JSON


class StepFailed(Exception):
    """A step has failed after all its retries.

    ``type`` is the name of the exception that its function raised, and ``original`` that exception, if it can be made
    again. Then ``except`` with the class of that exception catches this one too.
    """

    failure: Failure
    code: str
    type: str
    original: Exception | None

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.describe(failure, None)

    def describe(self, failure: Failure, original: Exception | None) -> None:
        """Set the attributes."""
        self.failure = failure
        self.code = failure.code
        details = failure.details if isinstance(failure.details, dict) else {}
        self.type = str(details.get("type", ""))
        self.original = original


class ChildFailed(Exception):
    """A child run has not completed: ``status`` is failed, cancelled or expired."""

    def __init__(self, status: str, failure: Failure | None) -> None:
        super().__init__(failure.message if failure is not None else f"the child run is {status}")
        self.status = status
        self.failure = failure
        self.code = failure.code if failure is not None else status


class ModelFailed(Exception):
    """A model has not answered, or its answer does not have the requested form."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.code = failure.code


class NotInWorkflow(Exception):
    """A workflow has used input, output, threads or processes, which only steps may use."""

    code = "python.io_in_workflow"


class ContinueAsNew(BaseException):
    """Ends a workflow that continues as a new run with other arguments; ``input`` is the input of that run.

    It is not an `Exception`, so that ``except Exception`` does not catch it.
    """

    def __init__(self, positional: tuple[Any, ...], named: dict[str, Any], input: JSON) -> None:
        super().__init__("the workflow continues as a new run")
        self.positional = positional
        self.named = named
        self.input = input


class WorkflowFault(Exception):
    """The code of a workflow has an error that ends the run and cannot be caught; ``failure`` describes it."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
