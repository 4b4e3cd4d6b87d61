"""The measured corpus: harmless commands do not ask, evasions are stopped."""

from __future__ import annotations

from interlock.policy.corpus import RuleLists, evasions, harmless, measure
from policy.shell.typed import decide


def test_every_harmless_command_is_allowed_and_every_evasion_is_denied_or_asked_about() -> None:
    measured = measure(decide)

    assert measured.misses == ()
    assert measured.rates == (1.0, 1.0)


def test_the_corpus_is_as_large_as_promised_and_says_nothing_twice() -> None:
    for corpus in (harmless(), evasions()):
        commands = [command for _, command in corpus]
        assert len(commands) == len(corpus) >= 320
        assert len(set(commands)) == len(commands)


def test_the_corpora_are_told_apart_by_more_than_asking_always_or_never() -> None:
    def never(lists: RuleLists, command: str) -> None:
        return None

    assert measure(never).rates == (0.0, 0.0)
    assert measure(lambda lists, command: "allow").rates == (1.0, 0.0)
    assert measure(lambda lists, command: "ask").rates == (0.0, 1.0)


def test_harmless_commands_are_not_harmless_by_being_allowed_whole() -> None:
    """The usual rules name programs and sub-commands: none of them is a blanket."""
    assert not {"Bash", "Bash(*)", "*"} & set(harmless().rules.allow)
