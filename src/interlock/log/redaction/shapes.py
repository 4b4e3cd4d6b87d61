"""What keys look like: the known shapes of secrets, as data, and the patterns made of them.

Lives here: `Shape`, `SHAPES`, and `patterns_of`. A shape begins with a fixed text, and goes on with fixed texts and runs
of characters; from these two patterns follow: one that finds it, and one that says whether the end of a text may be
the beginning of it, which a stream needs. Shapes are narrow on purpose: text that merely speaks of a password stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Run:
    """So many characters of a class, as in `Run("A-Z0-9", 16)`.

    `most` None, for the last run of a shape only: as many as come. Such a class has the letter A in it.
    """

    chars: str
    least: int
    most: int | None = None


Piece: TypeAlias = str | Run


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of secret.

    starts: one of these texts is its beginning, not in the middle of a word. rest: what follows. shown: how many pieces
    of `rest`, with the start, are no secret and stay; None: not even the start. after: how many pieces at the end stay.
    until: a text at which the last run ends though it is of its characters.
    test: a look-ahead that the secret must pass, which looks at no more than its first `LOOKS` characters.
    """

    kind: str
    starts: tuple[str, ...]
    rest: tuple[Piece, ...]
    shown: int | None = None
    after: int = 0
    until: str = ""
    test: str = ""


LOOKS = 64
KEEPS = 2048  # all that decides whether a text is of a shape, and of which, is within so many characters

_WORD = "A-Za-z0-9"
_TOKEN = "A-Za-z0-9_-"  # of the URL-safe base64
_BASE64 = "A-Za-z0-9+/="
_QUOTES = "\"'\\\\ "
_ESCAPES = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=\\u[0-9a-fA-F]{4}))"  # "\n" in JSON ends a word, too


def _mixed(chars: str) -> str:
    """It looks random: a digit, a small and a capital letter, and nothing that says it is none."""
    one_each = "".join(rf"(?=[{chars}]{{0,{LOOKS - 1}}}{one})" for one in ("[0-9]", "[a-z]", "[A-Z]"))
    return one_each + _NO_EXAMPLE


_NO_EXAMPLE = rf"(?![{_WORD}/+_-]{{0,{LOOKS - 12}}}(?:EXAMPLE|[Ee]xample|[Pp]laceholder|[Cc]hange|[Yy]our))"
_BEARER = r"A-Za-z0-9._~+/=-"
_UNQUOTED = r"A-Za-z0-9_+/=~!@#$%^&*?-"
_QUOTED = "." + _UNQUOTED
_KEYS = tuple(
    f"-----BEGIN {name}-----"
    for name in (
        "PRIVATE KEY",
        *(f"{algorithm} PRIVATE KEY" for algorithm in ("RSA", "EC", "DSA", "OPENSSH", "ENCRYPTED")),
        "PGP PRIVATE KEY BLOCK",
    )
)
_SCHEMES = tuple(
    f"{scheme}://"
    for scheme in (
        *("http", "https", "ftp", "sftp", "ssh", "postgres", "postgresql", "mysql", "mariadb", "mongodb"),
        *(
            "mongodb+srv",
            "redis",
            "rediss",
            "amqp",
            "amqps",
            "ldap",
            "ldaps",
            "smtp",
            "smtps",
            "imap",
            "clickhouse",
        ),
    )
)
_WORDS = (
    ("password",),
    ("passwd",),
    ("passphrase",),
    *(("api", "key"), ("secret", "key"), ("encryption", "key"), ("signing", "key")),
    *(("client", "secret"), ("auth", "token"), ("access", "token"), ("refresh", "token")),
)
_NAMES = tuple(
    dict.fromkeys(
        name
        for words in _WORDS
        for lower, title in [("_".join(words), [word.title() for word in words])]
        for name in (
            lower,
            lower.upper(),
            lower.replace("_", "-"),
            "".join(title),
            "".join([words[0], *title[1:]]),
        )
    )
)

SHAPES: tuple[Shape, ...] = (
    Shape("anthropic-key", ("sk-ant-",), (Run(_TOKEN, 24),)),
    Shape("openrouter-key", ("sk-or-v1-",), (Run(_WORD, 32),)),
    Shape("openai-key", ("sk-proj-", "sk-svcacct-", "sk-admin-"), (Run(_TOKEN, 24),)),
    Shape("openai-key", ("sk-",), (Run(_WORD, 32),)),
    Shape("groq-key", ("gsk_",), (Run(_WORD, 40),)),
    Shape("xai-key", ("xai-",), (Run(_WORD, 60),)),
    Shape("perplexity-key", ("pplx-",), (Run(_WORD, 40),)),
    Shape("replicate-key", ("r8_",), (Run(_WORD, 35),)),
    Shape("huggingface-token", ("hf_",), (Run(_WORD, 30),)),
    Shape("aws-key", ("AKIA", "ASIA"), (Run("A-Z0-9", 16),), test=_NO_EXAMPLE),
    Shape(
        "aws-secret",
        ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", "SecretAccessKey", "secretAccessKey"),
        (Run(_QUOTES, 0, 4), Run("=:", 1, 2), Run(_QUOTES, 0, 4), Run(_BASE64, 40)),
        shown=3,
        test=_NO_EXAMPLE,
    ),
    Shape("azure-key", ("AccountKey=", "SharedAccessKey="), (Run(_BASE64, 40),), shown=0),
    Shape("google-key", ("AIza",), (Run(_TOKEN, 35),)),
    Shape("google-secret", ("GOCSPX-",), (Run(_TOKEN, 20),)),
    Shape("google-token", ("ya29.",), (Run(_TOKEN, 30),)),
    Shape("github-token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), (Run(_WORD, 36),)),
    Shape("github-token", ("github_pat_",), (Run("A-Za-z0-9_", 40),)),
    Shape("gitlab-token", ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "glsoat-"), (Run(_TOKEN, 20),)),
    Shape(
        "slack-token", ("xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xapp-"), (Run("A-Za-z0-9-", 20),)
    ),
    Shape("slack-webhook", ("hooks.slack.com/services/",), (Run("A-Za-z0-9/", 24),), shown=0),
    Shape("stripe-key", ("sk_live_", "rk_live_", "sk_test_", "rk_test_", "whsec_"), (Run(_WORD, 20),)),
    Shape("sendgrid-key", ("SG.",), (Run(_TOKEN, 16, 32), ".", Run(_TOKEN, 32))),
    Shape("npm-token", ("npm_",), (Run(_WORD, 36),)),
    Shape("pypi-token", ("pypi-AgE",), (Run(_TOKEN, 50),)),
    Shape("digitalocean-token", ("dop_v1_", "doo_v1_", "dor_v1_"), (Run(_WORD, 60),)),
    Shape("vault-token", ("hvs.", "hvb."), (Run(_TOKEN, 24),)),
    Shape("age-key", ("AGE-SECRET-KEY-1",), (Run("A-Z0-9", 50),)),
    Shape("jwt", ("eyJ",), (Run(_TOKEN, 10, 1000), ".eyJ", Run("A-Za-z0-9_.-", 20))),
    Shape(
        "private-key",
        _KEYS,
        (Run(r"\\nr\s", 1, 8), Run(r"A-Za-z0-9+/=:, -", 16, 16), Run(r"A-Za-z0-9+/=:,.\\\s-", 0)),
        shown=1,
        until="-----END ",
    ),
    Shape(
        "url-password",
        _SCHEMES,
        (Run(r"\w.%+~-", 0, 64), ":", Run(r"\w.%+~!$&*,;=^#-", 4, 256), "@"),
        shown=2,
        after=1,
        test=r"(?!(?:\w*(?:[Pp]ass(?:word|wd)?|PASS(?:WORD)?|[Ss]ecret|token|[Xx]{3,}|\*+)|[Uu]ser|postgres|guest)@)",
    ),
    Shape("bearer-token", ("Bearer ", "bearer "), (Run(_BEARER, 24),), shown=0, test=_mixed(_BEARER)),
    Shape(
        "basic-auth",
        ("Authorization: Basic ", "authorization: Basic ", "authorization: basic "),
        (Run(_BASE64, 12),),
        shown=0,
    ),
    Shape(
        "password",
        _NAMES,
        (Run(_QUOTES, 0, 3), Run("=:>", 1, 2), Run(" ", 0, 2), Run("\\\\\"'", 1, 2), Run(_QUOTED, 12)),
        shown=4,
        test=_mixed(_QUOTED),
    ),
    Shape("password", _NAMES, ("=", Run(_UNQUOTED, 12)), shown=1, test=_mixed(_UNQUOTED)),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Patterns:
    """What is made of some shapes; the group that matched is the secret, and `kinds` says of which kind it is."""

    starts: tuple[str, ...]
    kinds: dict[str, str]
    whole: re.Pattern[str]  # the shape, where a word may begin
    bare: re.Pattern[str]  # the same, whatever stands before
    begun: re.Pattern[str]  # the text ends within it
    bare_begun: re.Pattern[str]


@cache
def patterns_of(shapes: tuple[Shape, ...]) -> Patterns:
    """Made once: it takes some 40 ms."""
    groups = {f"s{i}": shape for i, shape in enumerate(shapes)}
    whole = "|".join(_whole(shape, name) for name, shape in groups.items()) or r"(?!)"
    begun = "|".join(map(_begun, shapes)) or r"(?!)"
    return Patterns(
        tuple(dict.fromkeys(start for shape in shapes for start in shape.starts)),
        {name: shape.kind for name, shape in groups.items()},
        re.compile(f"{_ESCAPES}(?:{whole})"),
        re.compile(whole),
        re.compile(f"{_ESCAPES}(?:{begun})"),
        re.compile(begun),
    )


def _whole(shape: Shape, name: str) -> str:
    pieces = [_any(shape.starts), *map(_full, shape.rest)]
    first = 0 if shape.shown is None else shape.shown + 1
    last = len(pieces) - shape.after
    last_run = shape.rest[-1]
    if shape.until and isinstance(last_run, Run):
        pieces[-1] = rf"(?:(?!{shape.until})[{last_run.chars}])*"
    secret = "".join(pieces[first:last])
    return f"{''.join(pieces[:first])}{shape.test}(?P<{name}>{secret}){''.join(pieces[last:])}"


def _begun(shape: Shape) -> str:
    """A pattern of every text that more text could make one of the shape, unless it is one already."""
    pieces: tuple[Piece | tuple[str, ...], ...] = (shape.starts, *shape.rest)
    *others, last = pieces
    # A secret that must pass a test may come to pass it as long as it is no longer than what the test looks at.
    pattern = _part(last, LOOKS if shape.test else 0) + r"\Z"
    for piece in reversed(others):
        full = _any(piece) if isinstance(piece, tuple) else _full(piece)
        pattern = rf"(?:{_part(piece, 0)}\Z|{full}{pattern})"
    return pattern


def _any(texts: Sequence[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, texts))})"


def _full(piece: Piece) -> str:
    if isinstance(piece, str):
        return re.escape(piece)
    return f"[{piece.chars}]{{{piece.least},{'' if piece.most is None else piece.most}}}"


def _part(piece: Piece | tuple[str, ...], looks: int) -> str:
    if isinstance(piece, Run):
        most = max(piece.least, looks) if piece.most is None else piece.most
        return f"[{piece.chars}]{{0,{most}}}"
    texts = piece if isinstance(piece, tuple) else (piece,)
    parts = dict.fromkeys(text[:end] for text in texts for end in range(len(text), 0, -1))
    return _any(tuple(parts)) + ("" if isinstance(piece, tuple) else "?")
