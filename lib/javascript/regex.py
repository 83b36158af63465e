"""JavaScript regular expressions with a limit on steps, so that no pattern can block a worker.

A pattern is compiled to a program for a backtracking machine with an explicit stack, which counts its steps. The limit
is in steps and not in time, so a replay gets the same result on any computer.
"""

import struct
from functools import lru_cache
from typing import Literal, assert_never

from msgspec import Struct

from callboard.lib.javascript.parser import WORD, parse_pattern
from callboard.lib.javascript.syntax import (
    Alternation,
    Assertion,
    Back,
    Capture,
    Chars,
    InvalidRegex,
    Look,
    Pattern,
    Range,
    Repeat,
    Sequence,
)
from callboard.lib.step_limits import CHARS_PER_STEP, Steps, TooManySteps

PROGRAM_MAX = 20_000
"""Maximum number of instructions of a pattern. The compiler expands counted repetitions."""

PATTERNS_KEPT = 256
"""Number of compiled patterns in the cache."""


class _One(Struct, frozen=True):
    """Consume one character."""

    ranges: tuple[Range, ...]
    negated: bool
    step: Literal[1, -1]


class _Split(Struct, frozen=True):
    """Continue at ``first``; if that fails, at ``second``."""

    first: int
    second: int


class _Jump(Struct, frozen=True):
    to: int


class _Save(Struct, frozen=True):
    """Store the position in a register."""

    register: int


class _Clear(Struct, frozen=True):
    """Reset the groups of the listed registers, as JavaScript does before each iteration of a repetition."""

    registers: tuple[int, ...]


class _Moved(Struct, frozen=True):
    """Fail if the position is the one in a register: an iteration of a repetition matched the empty text."""

    register: int


class _Assert(Struct, frozen=True):
    kind: str


class _Peek(Struct, frozen=True):
    """Run the instructions from the next one to a `_Done` without moving the position; then continue at ``then``."""

    negated: bool
    then: int


class _Again(Struct, frozen=True):
    """Consume the text that a group matched."""

    start: int
    end: int
    step: Literal[1, -1]


class _Done(Struct, frozen=True):
    pass


Instruction = _One | _Split | _Jump | _Save | _Clear | _Moved | _Assert | _Peek | _Again | _Done


@lru_cache(PATTERNS_KEPT)
def compile_pattern(source: str) -> tuple[tuple[Instruction, ...], int]:
    """Compile a pattern; return its program and the number of registers that it needs.

    :raises InvalidRegex: if the text is not a regular expression, or exceeds our limits
    """
    pattern, groups = parse_pattern(source)
    compiler = _Compiler(2 * (groups + 1))
    compiler.write(pattern, 1)
    compiler.emit(_Done())
    return tuple(compiler.program), compiler.registers


class _Compiler:
    """Compiles a pattern to instructions; ``step`` is 1, or -1 inside a lookbehind."""

    def __init__(self, registers: int) -> None:
        self.program: list[Instruction] = []
        self.registers = registers

    def emit(self, instruction: Instruction) -> int:
        if len(self.program) >= PROGRAM_MAX:
            raise InvalidRegex("is too large once its repetitions are written out")
        self.program.append(instruction)
        return len(self.program) - 1

    def write(self, pattern: Pattern, step: Literal[1, -1]) -> None:
        match pattern:
            case Chars(ranges, negated):
                self.emit(_One(ranges, negated, step))
            case Sequence(items):
                for item in items if step == 1 else reversed(items):
                    self.write(item, step)
            case Alternation(branches):
                self._either(branches, step)
            case Capture(number, body):
                start, end = 2 * number, 2 * number + 1
                self.emit(_Save(start if step == 1 else end))
                self.write(body, step)
                self.emit(_Save(end if step == 1 else start))
            case Repeat():
                self._repeat(pattern, step)
            case Assertion(kind):
                self.emit(_Assert(kind))
            case Look(body, behind, negated):
                at = self.emit(_Jump(0))
                self.write(body, -1 if behind else 1)
                self.program[at] = _Peek(negated, self.emit(_Done()) + 1)
            case Back(number):
                self.emit(_Again(2 * number, 2 * number + 1, step))
            case _:
                assert_never(pattern)

    def _either(self, branches: tuple[Pattern, ...], step: Literal[1, -1]) -> None:
        jumps: list[int] = []
        for branch in branches[:-1]:
            split = self.emit(_Jump(0))
            self.write(branch, step)
            jumps.append(self.emit(_Jump(0)))
            self.program[split] = _Split(split + 1, len(self.program))
        self.write(branches[-1], step)
        for jump in jumps:
            self.program[jump] = _Jump(len(self.program))

    def _repeat(self, repeat: Repeat, step: Literal[1, -1]) -> None:
        for _ in range(repeat.least):
            self._round(repeat, step)
        mark = self.registers
        self.registers += 1
        if repeat.most is None:
            split = self._optional_round(repeat, step, mark)
            self.emit(_Jump(split))
            self._close(split, repeat.greedy)
            return
        splits = [self._optional_round(repeat, step, mark) for _ in range(repeat.most - repeat.least)]
        for split in splits:
            self._close(split, repeat.greedy)

    def _round(self, repeat: Repeat, step: Literal[1, -1]) -> None:
        first, behind = repeat.captures
        if behind > first:
            self.emit(_Clear(tuple(range(2 * first, 2 * behind))))
        self.write(repeat.body, step)

    def _optional_round(self, repeat: Repeat, step: Literal[1, -1], mark: int) -> int:
        split = self.emit(_Jump(0))
        self.emit(_Save(mark))
        self._round(repeat, step)
        self.emit(_Moved(mark))
        return split

    def _close(self, split: int, greedy: bool) -> None:
        enter, leave = split + 1, len(self.program)
        self.program[split] = _Split(enter, leave) if greedy else _Split(leave, enter)


__all__ = ["InvalidRegex", "Search", "TooManySteps", "check", "units"]

STEPS_MAX = 700_000
"""Maximum number of steps of one check, some tenths of a second."""

INSTRUCTION_STEPS = 5
"""Steps for each executed instruction, besides the steps for the data that it reads or copies."""

REGISTERS_PER_STEP = 4
RANGES_PER_STEP = 3
"""Number of copied registers, and of ranges compared with a character, that count as one step."""

Registers = tuple[int | None, ...]
"""The machine's memory: start and end of each group, and the start of each repetition's current iteration."""


def units(text: str) -> str:
    """Return a text whose characters are replaced by their UTF-16 units, which JavaScript matches without flags."""
    if all(character <= "\uffff" for character in text):
        return text
    written = text.encode("utf-16-le", "surrogatepass")
    return "".join(map(chr, struct.unpack(f"<{len(written) // 2}H", written)))


def check(source: str) -> None:
    """Check that a text is a valid pattern.

    :raises InvalidRegex: if it is not a regular expression, or exceeds our limits
    """
    compile_pattern(source)


class Search:
    """A search for a pattern in any number of texts, with one limit on steps for all of them together.

    :raises InvalidRegex: if the source is not a regular expression, or exceeds our limits
    :raises TooManySteps: if the program alone is longer than the limit
    """

    def __init__(self, source: str, steps: Steps | None = None) -> None:
        self._program, registers = compile_pattern(source)
        self._empty: Registers = (None,) * registers
        self._anchored = self._program[0] == _Assert("start")
        self._steps = steps or Steps(STEPS_MAX)
        self._steps.take(len(self._program))

    def found(self, text: str) -> bool:
        """Return whether the pattern matches anywhere in a text.

        :raises TooManySteps: if the search exceeds the limit
        """
        machine = _Machine(self._program, text, self._steps)
        starts = 1 if self._anchored else len(text) + 1
        return any(machine.run(0, start, self._empty) is not None for start in range(starts))


class _Machine:
    """Runs a program over a text."""

    def __init__(self, program: tuple[Instruction, ...], text: str, steps: Steps) -> None:
        self.program = program
        self.text = text
        self.steps = steps

    def run(self, at: int, position: int, registers: Registers) -> Registers | None:
        """Run from an instruction; return the registers at its `_Done`, or None if there is no match."""
        open_ways = [(at, position, registers)]
        while open_ways:
            way: tuple[int, int, Registers] | None = open_ways.pop()
            while way is not None:
                self.steps.take(INSTRUCTION_STEPS)
                at, position, registers = way
                match self.program[at]:
                    case _Done():
                        return registers
                    case _Split(first, second):
                        open_ways.append((second, position, registers))
                        way = (first, position, registers)
                    case instruction:
                        way = self._step(instruction, at, position, registers)
        return None

    def _step(
        self,
        instruction: _One | _Jump | _Save | _Clear | _Moved | _Assert | _Peek | _Again,
        at: int,
        position: int,
        registers: Registers,
    ) -> tuple[int, int, Registers] | None:
        match instruction:
            case _One(ranges, negated, step):
                self.steps.take(len(ranges) // RANGES_PER_STEP)
                index = position if step == 1 else position - 1
                if not 0 <= index < len(self.text) or _within(ord(self.text[index]), ranges) == negated:
                    return None
                return at + 1, position + step, registers
            case _Jump(to):
                return to, position, registers
            case _Save(register):
                self.steps.take(len(registers) // REGISTERS_PER_STEP)
                return at + 1, position, (*registers[:register], position, *registers[register + 1 :])
            case _Clear(cleared):
                self.steps.take(len(registers) * (1 + len(cleared)) // REGISTERS_PER_STEP)
                kept = tuple(None if n in cleared else value for n, value in enumerate(registers))
                return at + 1, position, kept
            case _Moved(register):
                return None if registers[register] == position else (at + 1, position, registers)
            case _Assert(kind):
                return (at + 1, position, registers) if self._holds(kind, position) else None
            case _Peek(negated, then):
                found = self.run(at + 1, position, registers)
                if (found is None) != negated:
                    return None
                return then, position, registers if negated or found is None else found
            case _Again(start, end, step):
                return self._again(registers[start], registers[end], step, at, position, registers)
            case _:
                assert_never(instruction)

    def _again(
        self, start: int | None, end: int | None, step: int, at: int, position: int, registers: Registers
    ) -> tuple[int, int, Registers] | None:
        if start is None or end is None:
            return at + 1, position, registers
        self.steps.take((end - start) // CHARS_PER_STEP)
        wanted = self.text[start:end]
        there = position if step == 1 else position - len(wanted)
        if there < 0 or not self.text.startswith(wanted, there):
            return None
        return at + 1, position + step * len(wanted), registers

    def _holds(self, kind: str, position: int) -> bool:
        match kind:
            case "start":
                return position == 0
            case "end":
                return position == len(self.text)
            case _:
                before = position > 0 and _within(ord(self.text[position - 1]), WORD)
                after = position < len(self.text) and _within(ord(self.text[position]), WORD)
                return (before != after) == (kind == "boundary")


def _within(code: int, ranges: tuple[Range, ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)
