"""Prefix rules of Codex, as rules of ours.

Lives here: `read_prefixes`, for the part of Starlark that these files are written in: calls of `prefix_rule` with
literals. `prefix_rule(pattern=["git", ["push", "fetch"]], decision="prompt")` is `ask Bash(git push:*)` and `ask
Bash(git fetch:*)`. Its `match` and `not_match` are examples, and are tried when the file is read.
"""

from __future__ import annotations

import ast
import shlex
from collections.abc import Mapping
from itertools import product
from typing import Any

from interlock.policy.rules.positions import Path
from interlock.policy.rules.rule import Effect, RuleError
from interlock.policy.shell import analyse, command_matcher

_DECISIONS: Mapping[str, Effect] = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}
_FIELDS = ("pattern", "decision", "justification", "match", "not_match")


def read_prefixes(text: str, shown: str) -> tuple[Mapping[str, Any], Mapping[Path, int]]:
    """The file as a table of lists of rules, and the line of each rule.

    Raises:
        RuleError: it is more than such calls, or an example does not hold.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        raise RuleError(f"not a file of prefix rules: {error}", file=shown, line=line) from None
    lists: dict[str, list[str]] = {"allow": [], "ask": [], "deny": []}
    lines: dict[Path, int] = {}
    for statement in module.body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                continue  # a text that explains the file
            case ast.Expr(value=ast.Call(func=ast.Name(id="prefix_rule"), args=[], keywords=keywords)):
                effect, texts = _rule(keywords, shown, statement.lineno)
                for rule in texts:
                    lines["permissions", effect, len(lists[effect])] = statement.lineno
                    lists[effect].append(rule)
            case _:
                raise RuleError(
                    "only prefix_rule(pattern=[...], decision=...) is read here: put other rules into a file of ours",
                    file=shown,
                    line=statement.lineno,
                )
    return {"permissions": lists}, lines


def _rule(keywords: list[ast.keyword], shown: str, line: int) -> tuple[Effect, list[str]]:
    def wrong(problem: str) -> RuleError:
        return RuleError(f"prefix_rule: {problem}", file=shown, line=line)

    given: dict[str, Any] = {}
    for keyword in keywords:
        if keyword.arg not in _FIELDS:
            raise wrong(f"it has no {keyword.arg!r}: it may have {', '.join(_FIELDS)}")
        try:
            given[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, SyntaxError):
            raise wrong(f"{keyword.arg} is not a literal") from None
    decision = given.get("decision", "allow")
    if decision not in _DECISIONS:
        raise wrong(f"decision is one of {', '.join(_DECISIONS)}, not {decision!r}")
    effect = _DECISIONS[decision]
    tokens = [[token] if isinstance(token, str) else token for token in _list(given.get("pattern"))]
    if not tokens or not all(_words(alternatives) for alternatives in tokens):
        raise wrong("pattern is a list of words, or of lists of words that may stand there")
    if any("*" in word for alternatives in tokens for word in alternatives):
        raise wrong("a `*` in pattern would be any text here: write the rule as Bash(...) in a file of ours")
    prefixes = [" ".join([shlex.quote(word) for word in words]) for words in product(*tokens)]
    matchers = [command_matcher(f"{prefix}:*") for prefix in prefixes]
    for field, expected in (("match", True), ("not_match", False)):
        for example in _list(given.get(field, [])):
            words = example if isinstance(example, str) else shlex.join(example) if _words(example) else None
            if words is None:
                raise wrong(f"{field} holds commands, not {example!r}")
            commands = analyse(words).commands
            if any(matcher.allows(one) for matcher in matchers for one in commands) != expected:
                raise wrong(f"{words!r} is in {field} and does {'not ' if expected else ''}match")
    return effect, [f"Bash({prefix}:*)" for prefix in prefixes]


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _words(value: object) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(isinstance(w, str) and w for w in value)
