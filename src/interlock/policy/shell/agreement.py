"""A second opinion: tree-sitter's reading of a command line against ours.

Lives here: `disagreement`. Where the two do not see the same commands with the same words, neither is trusted. Also any
error or missing part that tree-sitter reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, assert_never

from interlock.policy.shell.syntax import (
    Case,
    Command,
    For,
    Function,
    Group,
    If,
    Sequence,
    Simple,
    Test,
    Token,
    While,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Span = tuple[int, int]

# The scanner of the grammar looks such characters up in a table of 256 places, and reads wherever that leads. To bash
# all of them are letters of a word.
_BEYOND = re.compile(r"[^\x00-\xff]")
_DECLARES = frozenset(["declare", "typeset", "local", "export", "readonly", "unset", "unsetenv"])


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def disagreement(command: str, sequence: Sequence) -> str | None:
    """What is seen differently, in words; None if nothing is."""
    command = _BEYOND.sub("é", command)
    source = command.encode()
    root = _parser().parse(source).root_node
    if root.has_error:
        return "the grammar of bash does not cover it"
    offsets = None if len(source) == len(command) else _offsets(command)
    theirs = set(_theirs(root))
    ours = set(_ours(sequence, offsets))
    if theirs == ours:
        return None
    start, end = min(theirs ^ ours)
    return f"at {source[start:end].decode('utf-8', 'replace')!r}"


def _offsets(command: str) -> list[int]:
    """The byte at which each character begins."""
    found = [0]
    for character in command:
        found.append(found[-1] + len(character.encode()))
    return found


def _theirs(root: Node) -> Iterator[Span]:
    """The spans of the words of every command, as tree-sitter sees them."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        kind = node.type
        children = node.children
        if kind == "command":
            timed = False
            for index, child in enumerate(children):
                if child.type == "command_name":
                    timed = child.text == b"time"
                    if not timed:
                        yield (child.start_byte, child.end_byte)
                elif node.field_name_for_child(index) == "argument" and not (timed and child.text == b"-p"):
                    yield (child.start_byte, child.end_byte)
        elif kind in ("declaration_command", "unset_command"):
            yield (children[0].start_byte, children[0].end_byte)
        elif kind == "file_redirect":
            # The grammar counts the words after the target as further targets.
            for child in node.children_by_field_name("destination")[1:]:
                yield (child.start_byte, child.end_byte)
        elif kind in ("heredoc_redirect", "herestring_redirect"):
            for child in node.children_by_field_name("argument"):
                yield (child.start_byte, child.end_byte)
        waiting.extend(children)


def _ours(sequence: Sequence, offsets: list[int] | None) -> Iterator[Span]:
    for start, end in _spans(sequence):
        yield (start, end) if offsets is None else (offsets[start], offsets[end])


def _spans(sequence: Sequence) -> Iterator[Span]:
    for command in commands(sequence):
        if not isinstance(command, Simple) or not command.tokens:
            continue
        words = [token.word for token in command.tokens]
        first = words[0].source
        if first == "[":
            continue
        if first == "time":  # theirs is a command where ours is a word of the pipeline
            words = [word for word in words[1:] if word.source != "-p"]
        if first in _DECLARES and words:
            yield words[0].span
        else:
            yield from (word.span for word in words)


def commands(sequence: Sequence) -> Iterator[Command]:
    """Every command of a sequence, also those nested in words."""
    for item in sequence.items:
        for pipeline in (item.first, *(pipeline for _, pipeline in item.rest)):
            for stage in pipeline.stages:
                yield from _inside(stage)


def _inside(command: Command) -> Iterator[Command]:
    yield command
    tokens: list[Token] = []
    sequences: list[Sequence] = []
    match command:
        case Simple():
            tokens += command.tokens
            for assign in command.assigns:
                tokens += assign.values
                sequences += assign.subscript
        case Group():
            sequences.append(command.body)
        case If():
            sequences += [*command.conditions, *command.branches]
        case While():
            sequences += [command.condition, command.body]
        case For():
            tokens += command.values or ()
            sequences.append(command.body)
        case Case():
            tokens.append(command.subject)
            for patterns, body in command.clauses:
                tokens += patterns
                sequences.append(body)
        case Function():
            yield from _inside(command.body)
        case Test():
            sequences += command.inside
            if command.body is not None:
                sequences.append(command.body)
        case _:
            assert_never(command)
    if not isinstance(command, Function):
        tokens += [redirect.target for redirect in command.redirects]
    for token in tokens:
        sequences += token.inside
    for each in sequences:
        yield from commands(each)
