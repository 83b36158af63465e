"""Programs for the backtracking machine of `regex`: the instructions, and the compiler from patterns to them."""

from functools import lru_cache
from typing import Literal, assert_never

from msgspec import Struct

from callboard.lib.javascript.parser import parse_pattern
from callboard.lib.javascript.syntax import (
    Assertion,
    Back,
    BadPattern,
    Capture,
    Chars,
    Either,
    Look,
    Pattern,
    Range,
    Repeat,
    Sequence,
)

PROGRAM_MAX = 20_000
"""Maximum number of instructions of a pattern. The compiler expands counted repetitions."""

PATTERNS_KEPT = 256
"""Number of compiled patterns in the cache."""


class One(Struct, frozen=True):
    """Consume one character."""

    ranges: tuple[Range, ...]
    negated: bool
    step: Literal[1, -1]


class Split(Struct, frozen=True):
    """Continue at ``first``; if that fails, at ``second``."""

    first: int
    second: int


class Jump(Struct, frozen=True):
    to: int


class Save(Struct, frozen=True):
    """Store the position in a register."""

    register: int


class Clear(Struct, frozen=True):
    """Reset the groups of the listed registers, as JavaScript does before each iteration of a repetition."""

    registers: tuple[int, ...]


class Moved(Struct, frozen=True):
    """Fail if the position is the one in a register: an iteration of a repetition matched the empty text."""

    register: int


class Assert(Struct, frozen=True):
    kind: str


class Peek(Struct, frozen=True):
    """Run the instructions from the next one to a `Done` without moving the position; then continue at ``then``."""

    negated: bool
    then: int


class Again(Struct, frozen=True):
    """Consume the text that a group matched."""

    start: int
    end: int
    step: Literal[1, -1]


class Done(Struct, frozen=True):
    pass


Instruction = One | Split | Jump | Save | Clear | Moved | Assert | Peek | Again | Done


@lru_cache(PATTERNS_KEPT)
def compile_pattern(source: str) -> tuple[tuple[Instruction, ...], int]:
    """Compile a pattern; return its program and the number of registers that it needs.

    :raises BadPattern: if the text is not a regular expression, or exceeds our limits
    """
    pattern, groups = parse_pattern(source)
    compiler = _Compiler(2 * (groups + 1))
    compiler.write(pattern, 1)
    compiler.emit(Done())
    return tuple(compiler.program), compiler.registers


class _Compiler:
    """Compiles a pattern to instructions; ``step`` is 1, or -1 inside a lookbehind."""

    def __init__(self, registers: int) -> None:
        self.program: list[Instruction] = []
        self.registers = registers

    def emit(self, instruction: Instruction) -> int:
        if len(self.program) >= PROGRAM_MAX:
            raise BadPattern("is too large once its repetitions are written out")
        self.program.append(instruction)
        return len(self.program) - 1

    def write(self, pattern: Pattern, step: Literal[1, -1]) -> None:
        match pattern:
            case Chars(ranges, negated):
                self.emit(One(ranges, negated, step))
            case Sequence(items):
                for item in items if step == 1 else reversed(items):
                    self.write(item, step)
            case Either(branches):
                self._either(branches, step)
            case Capture(number, body):
                start, end = 2 * number, 2 * number + 1
                self.emit(Save(start if step == 1 else end))
                self.write(body, step)
                self.emit(Save(end if step == 1 else start))
            case Repeat():
                self._repeat(pattern, step)
            case Assertion(kind):
                self.emit(Assert(kind))
            case Look(body, behind, negated):
                at = self.emit(Jump(0))
                self.write(body, -1 if behind else 1)
                self.program[at] = Peek(negated, self.emit(Done()) + 1)
            case Back(number):
                self.emit(Again(2 * number, 2 * number + 1, step))
            case _:
                assert_never(pattern)

    def _either(self, branches: tuple[Pattern, ...], step: Literal[1, -1]) -> None:
        jumps: list[int] = []
        for branch in branches[:-1]:
            split = self.emit(Jump(0))
            self.write(branch, step)
            jumps.append(self.emit(Jump(0)))
            self.program[split] = Split(split + 1, len(self.program))
        self.write(branches[-1], step)
        for jump in jumps:
            self.program[jump] = Jump(len(self.program))

    def _repeat(self, repeat: Repeat, step: Literal[1, -1]) -> None:
        for _ in range(repeat.least):
            self._round(repeat, step)
        mark = self.registers
        self.registers += 1
        if repeat.most is None:
            split = self._optional_round(repeat, step, mark)
            self.emit(Jump(split))
            self._close(split, repeat.greedy)
            return
        splits = [self._optional_round(repeat, step, mark) for _ in range(repeat.most - repeat.least)]
        for split in splits:
            self._close(split, repeat.greedy)

    def _round(self, repeat: Repeat, step: Literal[1, -1]) -> None:
        first, behind = repeat.captures
        if behind > first:
            self.emit(Clear(tuple(range(2 * first, 2 * behind))))
        self.write(repeat.body, step)

    def _optional_round(self, repeat: Repeat, step: Literal[1, -1], mark: int) -> int:
        split = self.emit(Jump(0))
        self.emit(Save(mark))
        self._round(repeat, step)
        self.emit(Moved(mark))
        return split

    def _close(self, split: int, greedy: bool) -> None:
        enter, leave = split + 1, len(self.program)
        self.program[split] = Split(enter, leave) if greedy else Split(leave, enter)
