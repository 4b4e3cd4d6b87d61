"""What a redactor takes out of text, what it leaves, and that a stream is no different from a whole text."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

import interlock
from interlock.errors import ConfigError
from interlock.log.redaction.redactor import Redactor
from interlock.log.redaction.shapes import KEEPS, SHAPES, Run, Shape

MIXED = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cF"
LETTERS = {"A-Z0-9": "AB3DE6GH9JK2MN5PQ8"}
SECRETS = {"DB_PASSWORD": 'cor"rect/horse+7\n9', "PIN": "492817", "LONGER": "49281755", "ODD": "abcdef[red"}
redactor = Redactor(SECRETS)


def of_shape(shape: Shape) -> str:
    """The shortest text of a shape, near enough."""
    made = shape.starts[0]
    for i, piece in enumerate(shape.rest):
        if isinstance(piece, str):
            made += piece
        elif piece.least == 0 and i < len(shape.rest) - 1:
            continue
        elif piece.chars.startswith(r"\\nr"):
            made += "\n"
        elif piece.chars == r"\\\"'" or '"' in piece.chars:
            made += '"'
        elif piece.chars == "=:>" or piece.chars == "=:":
            made += "="
        else:
            letters = LETTERS.get(piece.chars, MIXED) * 4
            made += letters[: max(piece.least, 20 if piece.most is None else piece.least)]
    return made


OF_SHAPES = [of_shape(shape) for shape in SHAPES]

# Texts that put secrets, halves of secrets, marks and what separates them next to each other in any way.
parts = st.one_of(
    st.sampled_from(
        [
            *SECRETS.values(),
            "[redacted:PIN]",
            "[redacted:",
            "-----END RSA PRIVATE KEY-----",
            "\\n",
            '"',
            "@",
            "x",
        ]
    ),
    st.sampled_from(OF_SHAPES),
    st.sampled_from(OF_SHAPES).flatmap(lambda text: st.integers(1, len(text)).map(lambda n: text[:n])),
    st.sampled_from([*SECRETS.values()]).flatmap(
        lambda text: st.integers(1, len(text)).map(lambda n: text[n:])
    ),
    st.text("ab1 -_=:/.\n\\", max_size=6),
)
texts = st.lists(parts, max_size=6).map("".join)


@given(texts, st.data())
def test_a_stream_cut_anywhere_gives_what_the_whole_text_gives(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    stream = redactor.stream()

    given_on = [stream.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert "".join([*given_on, stream.end()]) == redactor.text(text)


@given(texts)
def test_a_stream_of_single_characters_gives_what_the_whole_text_gives(text: str) -> None:
    stream = redactor.stream()
    assert "".join([*map(stream.feed, text), stream.end()]) == redactor.text(text)


@given(texts)
def test_what_was_redacted_is_not_redacted_again(text: str) -> None:
    once = redactor.text(text)
    assert redactor.text(once) == once


@given(texts, st.sampled_from([*SECRETS.values(), *OF_SHAPES[:5]]), texts)
def test_no_declared_secret_is_left_wherever_it_stands(before: str, secret: str, after: str) -> None:
    made = redactor.text(f"{before} {secret} {after}")
    if secret in SECRETS.values():
        assert secret.removesuffix("[red") not in made
    else:
        assert f" {secret} " not in made


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.kind} {shape.starts[0]}")
def test_every_known_shape_is_found(shape: Shape) -> None:
    text = of_shape(shape)
    made = redactor.text(f"say {text}'; then")

    assert f"[redacted:{shape.kind}]" in made
    assert made.startswith("say ") and made.endswith("'; then")


@pytest.mark.parametrize("around", ["", "a", "ab", "abc"])
@pytest.mark.parametrize(
    "secret", ['pass"word\\x', "päßwörd-1", "two words/+", "line-one-is-long-1\nline-two-is-long-2"]
)
def test_a_declared_secret_is_found_in_every_spelling(secret: str, around: str) -> None:
    found = Redactor({"S": secret}, shapes=())
    data = (around + secret + around).encode()
    spelled = [
        around + secret + around,
        json.dumps(around + secret),
        json.dumps(around + secret, ensure_ascii=False),
        json.dumps(json.dumps({"command": secret})),
        quote(around + secret),
        quote(secret, safe=""),
        quote_plus(secret),
        b64encode(data).decode(),
        urlsafe_b64encode(data).decode(),
    ]
    for text in spelled:
        assert "[redacted:S]" in found.text(text), text


def test_a_line_of_a_key_of_several_lines_is_found_by_itself() -> None:
    key = "\n".join(["-----BEGIN X-----", MIXED, MIXED[::-1], "-----END X-----"])
    assert Redactor({"KEY": key}, shapes=()).text(f"  {MIXED}\n  rest") == "  [redacted:KEY]\n  rest"


def test_the_longer_of_two_secrets_is_found_where_both_begin() -> None:
    assert redactor.text("49281755 4928175") == "[redacted:LONGER] [redacted:PIN]5"


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("postgres://bob:Sup3rpw@db/x", "postgres://bob:[redacted:url-password]@db/x"),
        ("DB_PASSWORD=Xy12abcdEFGH", "DB_PASSWORD=[redacted:password]"),
        ('{"api_key": "Xy12abcd.EFGH"}', '{"api_key": "[redacted:password]"}'),
        ("Authorization: Basic Ym9iOnB3MTIz", "Authorization: Basic [redacted:basic-auth]"),
        (
            f"-----BEGIN PRIVATE KEY-----\n{MIXED}\n{MIXED}\n-----END PRIVATE KEY-----\nand words",
            "-----BEGIN PRIVATE KEY-----\n[redacted:private-key]-----END PRIVATE KEY-----\nand words",
        ),
        (f'{{"a": "x\\nghp_{MIXED}{MIXED}"}}', '{"a": "x\\n[redacted:github-token]"}'),
    ],
)  # fmt: skip
def test_what_stands_around_a_secret_stays(text: str, made: str) -> None:
    assert redactor.text(text) == made


@pytest.mark.parametrize(
    "text",
    [
        "the password is the first thing that a new colleague asks for",
        "password = get_password(user)",
        "connect(password=settings.DB_PASSWORD, api_key=os.environ['OPENAI_API_KEY'])",
        'password: str = Field(min_length=12, description="Your1 Password")',
        'api_key = "your-api-key-Here-1234"',
        "AKIAIOSFODNN7EXAMPLE",
        "postgres://user:password@localhost:5432/db and http://localhost:8080/a@b",
        "git clone https://${TOKEN}@github.com/x/y; curl https://{user}:{password}@host",
        "risk-based, task-oriented, disk-less; sk-learn; hf_hub; xai-sdk; npm_config_cache",
        'if "-----BEGIN PRIVATE KEY-----" in text: return "key"',
        "Bearer token authentication with a refresh token",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "6ba7b810-9dad-11d1-80b4-00c04fd430c8 iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    ],
)
def test_text_that_only_speaks_of_secrets_stays(text: str) -> None:
    assert redactor.text(text) is text


def test_ordinary_code_and_prose_stay() -> None:
    package, found = Path(interlock.__file__).parent, Redactor()
    for path in [*package.rglob("*.py"), *Path(json.__file__).parent.parent.glob("*.py")]:
        text = path.read_text()
        assert found.text(text) == text, path


words = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=9), max_size=40).map(" ".join)


@given(words)
def test_prose_is_held_back_by_a_few_characters_at_most(text: str) -> None:
    stream = redactor.stream()
    seen = 0
    for i, character in enumerate(text, 1):
        seen += len(stream.feed(character))
        assert i - seen <= max(len(start) for shape in SHAPES for start in shape.starts)


def test_a_word_that_cannot_begin_a_secret_is_given_on_at_once() -> None:
    stream = redactor.stream()
    assert [stream.feed(word) for word in ["We ", "look ", "at it", "."]] == ["We ", "look ", "at it", "."]


def test_a_key_without_an_end_is_held_back_in_bounded_room() -> None:
    stream = redactor.stream()
    assert stream.feed("see sk-proj-") == "see "
    for _ in range(500):
        assert stream.feed(MIXED) == ""
        assert len(stream._text) <= 2 * KEEPS + 2 * len(MIXED) + max(map(len, redactor.known().marks))
    assert stream.feed(" and on") == "[redacted:openai-key] and on"


def test_a_private_key_without_an_end_is_held_back_until_its_last_line() -> None:
    stream = redactor.stream()
    stream.feed("-----BEGIN RSA PRIVATE KEY-----\n")
    given_on = [stream.feed(MIXED + "\n") for _ in range(500)]
    given_on += [stream.feed(piece) for piece in ("-----", "END RSA PRIV", "ATE KEY-----", "\ndone.")]
    assert "".join([*given_on, stream.end()]) == (
        "-----BEGIN RSA PRIVATE KEY-----\n[redacted:private-key]-----END RSA PRIVATE KEY-----\ndone."
    )


def test_a_secret_can_be_declared_while_a_text_streams() -> None:
    found = Redactor()
    stream = found.stream()
    assert stream.feed("first opensesame ") == "first opensesame "
    found.add("phrase", "opensesame")
    assert stream.feed("then open") + stream.feed("sesame.") == "then [redacted:phrase]."


def test_a_shape_of_ones_own() -> None:
    badge = Shape("badge", ("BADGE-",), (Run("0-9A", 6),))
    assert Redactor(shapes=[*SHAPES, badge]).text("it is BADGE-123456.") == "it is [redacted:badge]."


@pytest.mark.parametrize("value", ["", "12345", "  abc  ", "x[redacted:y]z"])
def test_a_value_that_cannot_be_told_from_ordinary_text_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="cannot be told from ordinary text"):
        Redactor({"S": value})


@pytest.mark.parametrize("kind", ["", "two words", "a]b", "1st"])
def test_a_kind_is_a_name(kind: str) -> None:
    with pytest.raises(ConfigError, match="the kind of a secret"):
        Redactor({kind: "long enough"})


def test_one_text_is_not_taken_for_many_secrets() -> None:
    with pytest.raises(ConfigError, match="put a single one in a list"):
        Redactor("hunter22")


def test_variables_whose_names_look_secret_are_declared() -> None:
    found = Redactor.of_environment(
        {
            "OPENAI_API_KEY": "value-of-the-key",
            "GH_TOKEN": "value-of-the-token",
            "APP_SECRET": "value-of-the-secret",
            "PGPASSWORD": "value-of-the-password",
            "SHORT_KEY": "abc",
            "PASSWORD_STORE_DIR": "/home/me/.password-store",
            "MONKEY": "value-of-no-secret",
            "HOME": "/home/someone",
        }
    )
    assert found.text("value-of-the-key value-of-the-token value-of-the-secret value-of-the-password") == (
        "[redacted:OPENAI_API_KEY] [redacted:GH_TOKEN] [redacted:APP_SECRET] [redacted:PGPASSWORD]"
    )
    rest = "abc /home/me/.password-store value-of-no-secret /home/someone"
    assert found.text(rest) == rest
