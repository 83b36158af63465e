"""What a workflow can meet: failures of its steps and children, and what it must not do."""

from callboard.bus.effects import Failure


class StepFailed(Exception):
    """A step has failed, and is not tried again. ``type`` is the name of the exception that its function raised."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.code = failure.code
        details = failure.details if isinstance(failure.details, dict) else {}
        self.type: str = str(details.get("type", ""))


class ChildFailed(Exception):
    """A child run has not completed: ``status`` is failed, cancelled or expired."""

    def __init__(self, status: str, failure: Failure | None) -> None:
        super().__init__(failure.message if failure is not None else f"the child run is {status}")
        self.status = status
        self.failure = failure
        self.code = failure.code if failure is not None else status


class ModelFailed(Exception):
    """A model has not answered, or not as it was asked to."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.code = failure.code


class NotInWorkflow(Exception):
    """A workflow has tried what only a step may do: input and output, threads, processes."""

    code = "python.io_in_workflow"


class WorkflowFault(Exception):
    """The code of a workflow is at fault in a way that the run cannot continue with; ``failure`` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
