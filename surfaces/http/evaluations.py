"""Evaluation over HTTP: the datasets of a tenant, and experiments: they are started, and their reports are read."""

from typing import Any, Literal

from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.features.evaluation.datasets import (
    CaseInvalid,
    Dataset,
    DatasetCase,
    DatasetRow,
    Datasets,
    DatasetUnknown,
)
from callboard.features.evaluation.report import ExperimentReport
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection
from callboard.service.operations.experiments import experiment_start, read_report
from callboard.service.operations.operation import ApiError, OperationProvider
from callboard.service.operations.requests import Nothing, OneRun


class OneDataset(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``dataset``: a version of a dataset; 0 is the newest."""

    name: str
    version: int = 0


class AddCases(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``add_cases``: further cases, which make a new version of the dataset."""

    name: str
    cases: list[DatasetCase]
    by: str | None = None


class NamedDataset(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``remove_dataset``."""

    name: str


class RemovedDataset(Struct, frozen=True):
    """Answer of ``remove_dataset``: the number of its versions."""

    versions: int


class Evaluate(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``evaluate``: an experiment over a version of a dataset; 0 is the newest.

    ``candidates`` are the members of start messages that each candidate changes, by its name; without any the recorded
    definitions are replayed. ``prompts`` replace those of nodes. ``tools`` are the policies for calls that the record
    does not have. ``fresh`` asks for every model turn again. ``limits`` are those of the whole experiment.
    """

    name: str
    version: int = 0
    candidates: dict[str, dict[str, Any]] = {}
    prompts: dict[str, str] = {}
    tools: dict[str, Literal["refuse", "live", "script"]] = {}
    repeat: int = 1
    fresh: bool = False
    limits: dict[str, Any] = {}
    encryption_key: str | None = None
    run_id: str | None = None
    by: str | None = None


class Evaluations(OperationProvider):
    """The datasets and experiments of one store."""

    def __init__(self, connection: Connection) -> None:
        self._log = connection.log
        self._replicas = connection.config.replicas

    async def datasets(self, tenant: str, _request: Nothing) -> list[DatasetRow]:
        """List every version of every dataset, by name, the newest version first."""
        return await self._of(tenant).rows()

    async def dataset(self, tenant: str, request: OneDataset) -> Dataset:
        """Return a version of a dataset with its cases."""
        return await self._find(tenant, request.name, request.version)

    async def add_cases(self, tenant: str, request: AddCases) -> DatasetRow:
        """Add cases to a dataset, which makes a new version of it. Runs of its cases are kept from purges."""
        try:
            return (await self._of(tenant).add(request.name, request.cases, request.by)).row
        except CaseInvalid as error:
            raise _refused(400, error) from error

    async def remove_dataset(self, tenant: str, request: NamedDataset) -> RemovedDataset:
        """Remove all versions of a dataset, and release its runs."""
        try:
            return RemovedDataset(await self._of(tenant).remove(request.name))
        except DatasetUnknown as error:
            raise _refused(404, error) from error

    async def evaluate(self, tenant: str, request: Evaluate) -> Verdict:
        """Start an experiment, and answer with the verdict on its start."""
        found = await self._find(tenant, request.name, request.version)
        message = experiment_start(
            found, request.candidates, request.tools, request.repeat, fresh=request.fresh, prompts=request.prompts
        )
        given: dict[str, Any] = {"run_id": request.run_id, "encryption_key": request.encryption_key, "by": request.by}
        given["limits"] = {**request.limits, "then": "cancel"} if request.limits else None
        message |= {name: value for name, value in given.items() if value is not None}
        verdict = await Client(self._log, tenant).start(message)
        if verdict.status != "accepted":
            raise ApiError(400, "start.refused", "the experiment is refused", verdict.problems)
        return verdict

    async def experiment(self, tenant: str, request: OneRun) -> ExperimentReport:
        """Return the report about an experiment so far, the worst cases first."""
        events = await Client(self._log, tenant).events(request.run_id)
        try:
            return read_report(events, [])
        except CallboardError as error:
            raise _refused(400, error) from error

    def _of(self, tenant: str) -> Datasets:
        return Datasets(self._log, tenant, self._replicas)

    async def _find(self, tenant: str, name: str, version: int) -> Dataset:
        try:
            return await self._of(tenant).get(name, version or None)
        except DatasetUnknown as error:
            raise _refused(404, error) from error


def _refused(status: int, error: CallboardError) -> ApiError:
    return ApiError(status, error.code, error.message, remedy=error.remedy)
