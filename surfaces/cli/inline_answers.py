"""Answering a run at the terminal that performs it: its questions are prompted for, and its pauses are resumed.

A prompt ends if the question is answered elsewhere. Once stdin has ended, nothing is prompted for: the commands that
answer or resume the run are shown instead.
"""

import threading

import anyio
import anyio.abc
from anyio import to_thread

from callboard.bus.commands import Answer, Resume, Tell
from callboard.bus.errors import CallboardError
from callboard.bus.events import EffectCancelled, Event, HumanAsked, HumanClosed, RunEnd, RunPaused, RunResumed
from callboard.bus.log.port import NoAnswer
from callboard.projections.projection import known_payload
from callboard.runtime.client.client import Client
from callboard.service.operations.settlement import NotTaken, tell_and_wait
from callboard.surfaces.cli.asking import NobodyThere, Stopped, Terminal, ask, to_question
from callboard.surfaces.cli.event_output import Guiding, Quietly, Shower
from callboard.surfaces.cli.output import style

STEP = "step"
GO_ON = f"Enter resumes, {STEP} performs one node; NAME=VALUE sets a variable first"


class InlineAnswers(Quietly):
    """Shows events through another shower, and prompts at the terminal, one question after the other."""

    def __init__(
        self, shower: Shower, client: Client, run: str, guiding: Guiding, tasks: anyio.abc.TaskGroup, terminal: Terminal
    ) -> None:
        self._shower = shower
        self._client = client
        self._run = run
        self._guiding = guiding
        self._terminal = terminal
        self._open: dict[str, Event] = {}
        self._asking: tuple[str, threading.Event] | None = None
        self._absent = False
        self._news = anyio.Event()
        tasks.start_soon(self._attend)

    def event(self, sequence: int, event: Event) -> None:
        payload = known_payload(event)
        if isinstance(payload, HumanAsked | RunPaused) and not self._absent:
            self._shower.event(sequence, event)
            self._open[_place_of(event)] = event
            self._news.set()
            return
        if isinstance(payload, HumanClosed | RunResumed | EffectCancelled):
            self._close(_place_of(event))
        elif isinstance(payload, RunEnd):
            for place in list(self._open):
                self._close(place)
        # For other events, `Guiding` shows the command to type.
        self._guiding.event(sequence, event)

    def close(self) -> None:
        """End an open prompt."""
        if self._asking is not None:
            self._asking[1].set()

    def _close(self, place: str) -> None:
        self._open.pop(place, None)
        if self._asking is not None and self._asking[0] == place:
            self._asking[1].set()

    async def _attend(self) -> None:
        while not self._absent:
            while not self._open:
                self._news = anyio.Event()
                await self._news.wait()
            place, event = next(iter(self._open.items()))
            self._asking = place, threading.Event()
            self._shower.hold()
            try:
                await self._ask(event, self._asking[1])
            except Stopped:
                pass  # answered elsewhere, or the run has ended
            except NobodyThere:
                self._leave()
            finally:
                self._asking = None
                self._shower.release()
            self._open.pop(place, None)

    def _leave(self) -> None:
        """Show the commands for open effects, and prompt no more."""
        self._absent = True
        for event in self._open.values():
            self._guiding.guide(event)

    async def _ask(self, event: Event, stop: threading.Event) -> None:
        while not await self._tell_run(
            await to_thread.run_sync(self._ask_at_terminal, event, stop, abandon_on_cancel=True)
        ):
            pass

    def _ask_at_terminal(self, event: Event, stop: threading.Event) -> Tell:
        """Prompt at the terminal, in a thread; return the command to send to the run."""
        match known_payload(event):
            case HumanAsked() as asked:
                response = ask(self._terminal, to_question(asked), stop)
                return Answer(event.key, by="terminal", user_response=response)
            case RunPaused(step=step):
                return self._resume(step, stop)
            case _:
                raise TypeError(f"{event.type} does not ask anything")

    def _resume(self, step: str | None, stop: threading.Event) -> Resume:
        where = f" after step {step}" if step else ""
        self._terminal.say(style("‖ ", fg="yellow", bold=True) + f"Paused{where}. {GO_ON}.")
        variables: dict[str, str] = {}
        while (line := self._terminal.line(stop).strip()) and line != STEP:
            name, equals, value = line.partition("=")
            if not (name and equals):
                self._terminal.say(f"{line!r} is not of the form NAME=VALUE.")
                continue
            variables[name.strip()] = value
        return Resume(by="terminal", variables=variables, step=line == STEP)

    async def _tell_run(self, tell: Tell) -> bool:
        """Send the command; return False if the run did not understand it and the prompt is to be repeated."""
        verb = "answer" if isinstance(tell, Answer) else "resume"
        try:
            await tell_and_wait(self._client, self._run, verb, tell)
        except NotTaken as refused:
            self._terminal.say(refused.message)
            return refused.code not in ("answer.not_understood", "resume.variables")
        except (CallboardError, NoAnswer) as error:
            self._terminal.say(f"Sending failed: {error}")
        return True


def _place_of(event: Event) -> str:
    """Return the key of the effect that an event opens or closes; of a pause by command, ``paused``."""
    return event.key or "paused"
