"""Looking into scripts of sed and awk: whether they only read.

Lives here: `sed_problem` and `awk_problem`. They know the harmless part of each language; the rest is a problem.
"""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"\s*(?:[0-9]+(?:~[0-9]+)?|\$|\+[0-9]+|~[0-9]+)")
_PLAIN = frozenset("pdDPhHgGxnNqQ=lFz")
_FLAGS = re.compile(r"[gpiImM0-9]*")
_LABEL = re.compile(r"\s*[A-Za-z0-9_.-]*\s*(?=[;}\n]|$)")


def sed_problem(script: str) -> str | None:
    """Why a sed script may do more than print; None if it cannot."""
    at = 0
    while at < len(script):
        at = _past_blanks(script, at, ";\n}")
        if at >= len(script):
            return None
        after = _past_addresses(script, at)
        if after is None or after >= len(script):
            return "its script is not followed"
        command, at = script[after], after + 1
        if command == "#":
            line = script.find("\n", at)
            at = len(script) if line < 0 else line
        elif command == "{":
            continue
        elif command in "aic":
            end = at
            while (end := script.find("\n", end)) >= 0 and script[end - 1] == "\\":
                end += 1
            at = len(script) if end < 0 else end
        elif command in "bt:":
            found = _LABEL.match(script, at)
            if found is None:
                return "its script is not followed"
            at = found.end()
        elif command in "sy":
            parts = _past_parts(script, at)
            if parts is None:
                return "its script is not followed"
            flags = _FLAGS.match(script, parts)
            assert flags is not None  # it may be empty
            at = flags.end() if command == "s" else parts
            if at < len(script) and script[at] in "we":
                return f"its script {'writes a file' if script[at] == 'w' else 'runs a program'}"
        elif command in "wWrRe":
            does = {"e": "runs a program", "r": "reads a file", "R": "reads a file"}.get(
                command, "writes a file"
            )
            return f"its script {does}"
        elif command not in _PLAIN:
            return "its script is not followed"
        else:
            at = _past_digits(script, at) if command in "qQlL" else at
        at = _past_blanks(script, at, "")
        if at < len(script) and script[at] not in ";\n}#" and command != "{":
            return "its script is not followed"
    return None


def _past_blanks(script: str, at: int, more: str) -> int:
    while at < len(script) and (script[at] in " \t" or script[at] in more):
        at += 1
    return at


def _past_digits(script: str, at: int) -> int:
    at = _past_blanks(script, at, "")
    while at < len(script) and script[at].isdigit():
        at += 1
    return at


def _past_addresses(script: str, at: int) -> int | None:
    for _ in range(2):
        if found := _ADDRESS.match(script, at):
            at = found.end()
        elif script[at : at + 1] == "/" or script[at : at + 1] == "\\":
            mark = at if script[at] == "/" else at + 1
            end = _past_delimited(script, mark)
            if end is None:
                return None
            at = end
            while script[at : at + 1] in ("I", "M") and at < len(script):
                at += 1
        at = _past_blanks(script, at, "")
        if script[at : at + 1] != ",":
            break
        at = _past_blanks(script, at + 1, "")
    return _past_blanks(script, at, "!")


def _past_delimited(script: str, at: int) -> int | None:
    """Past `/…/`, whatever its delimiter; `at` is the first one."""
    if at >= len(script) or script[at] in "\\\n":
        return None
    mark, at = script[at], at + 1
    bracket = False
    while at < len(script):
        if script[at] == "\\":
            at += 2
            continue
        if script[at] == "\n":
            return None
        if script[at] == mark and not bracket:
            return at + 1
        # Inside brackets implementations differ about the delimiter: refuse it there.
        if script[at] == mark and bracket:
            return None
        if script[at] == "[" and not bracket:
            bracket = "]" in script[at + 2 :]
            at += 2 if script[at + 1 : at + 2] in ("]", "^") else 1
            continue
        if script[at] == "]":
            bracket = False
        at += 1
    return None


def _past_parts(script: str, at: int) -> int | None:
    """Past `/one/two/` of `s` and `y`."""
    middle = _past_delimited(script, at)
    if middle is None:
        return None
    mark = script[at]
    at = middle
    while at < len(script):
        if script[at] == "\\":
            at += 2
            continue
        if script[at] == mark:
            return at + 1
        at += 1
    return None


_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_REGEX = re.compile(r"(^|[~(,!&|{;\n]|\bsplit\b)(\s*)/(?:\\.|\[\^?\]?[^\]\n]*\]|[^/\\\n\[])+/")
_RUNS = re.compile(r"system|getline|@|\|(?!\|)|fflush|close|extension|\bprintf?\b[^;}\n]*>|<")
_COMMENT = re.compile(r"#[^\n]*")


def awk_problem(program: str) -> str | None:
    """Why an awk program may do more than print; None if it cannot."""
    plain = _STRING.sub('""', program)
    if '"' in plain.replace('""', ""):
        return "its script is not followed"
    plain = _REGEX.sub(r"\1\2 0", plain)
    plain = plain.replace("||", " ")
    plain = re.sub(r"<=?\s*[\w$(-]", " ", plain)  # a comparison; `getline <` is named by its word
    if found := _RUNS.search(plain):
        word = found[0]
        if word.startswith(("system", "|", "@", "extension")):
            return "its script may run a program"
        if word.startswith("print"):
            return "its script may write a file"
        return "its script may read or write a file, or run a program"
    return None
