"""Whether a command is what a rule forbids, however it is written.

Lives here: `Sought`, a pattern taken apart: program, words, options. It is looked for in a command through folders and
versions of the program's name, case, other spellings of a sub-command, options in any order, run together, shortened or
before the sub-command. Where the command has something unknown, the answer may be `MAYBE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from fnmatch import fnmatchcase
from functools import lru_cache

from interlock.policy.shell.analysis import Piece, View, Word
from interlock.policy.shell.programs import Program, folded, table, unversioned
from interlock.policy.shell.starred import starred


class Likeness(IntEnum):
    NO = 0
    MAYBE = 1
    YES = 2


@dataclass(frozen=True, slots=True)
class Sought:
    """`words`: what must stand there in this order; one that is `*` is any number of words. `open`: more may follow."""

    text: str  # the whole pattern, for patterns whose stars do not stand alone
    program: str
    words: tuple[str, ...]
    options: tuple[str, ...]
    open: bool
    loose: bool  # a star inside a word, or for the program

    @staticmethod
    def of(text: str, words: tuple[str, ...]) -> Sought:
        name, *rest = words
        program = name if "*" in name else unversioned(name)
        open_ = (bool(rest) and rest[-1] == "*") or (not rest and name.endswith("*"))
        if rest and rest[-1] == "*":
            rest = rest[:-1]
        elif rest and rest[-1].endswith("*"):
            open_ = True
        options = tuple(word for word in rest if _is_option(word))
        plain = tuple(folded(word) for word in rest if not _is_option(word))
        loose = any("*" in word for word in (name, *rest))
        known = None if "*" in name else table().program(name)
        return Sought(_fold(text), program, _respelled(known, plain), options, open_, loose)

    def in_view(self, view: View) -> Likeness:
        if not view.words:
            return Likeness.NO
        found = self._in_words(view.words)
        return found if view.certain else min(found, Likeness.MAYBE)

    def _in_words(self, words: tuple[Word, ...]) -> Likeness:
        name = words[0].literal
        if name is None:
            return _max(
                Likeness.MAYBE if _could_be(words[0], self.program) else Likeness.NO, self._as_text(words)
            )
        program = unversioned(name)
        if "*" in self.program:
            if not fnmatchcase(program, self.program.casefold()) and self.program != "*":
                return self._as_text(words)
        elif program != self.program:
            return self._as_text(words) if self.loose else Likeness.NO
        known = table().program(name)
        found = min(self._options(words[1:], known), self._words(words[1:], known))
        return _max(found, self._as_text(words)) if self.loose else found

    # Options, wherever they stand

    def _options(self, words: tuple[Word, ...], known: Program | None) -> Likeness:
        if not self.options:
            return Likeness.YES
        given: set[str] = set()
        unknown = False
        for index, word in enumerate(words):
            if word.literal is None:
                unknown |= _could_begin(word, "-")
            if not _is_option(word.text):
                continue
            given |= _said(word.text, known)
            if index + 1 < len(words):
                given.add(f"{word.text}={words[index + 1].text}")
        for option in self.options:
            if not _has(given, option, known):
                return Likeness.MAYBE if unknown else Likeness.NO
        return Likeness.YES

    # Words, in their order

    def _words(self, words: tuple[Word, ...], known: Program | None) -> Likeness:
        for spelled in _spellings(words, known):
            found = _in_order(spelled, self.words, known, self.open, bool(self.options))
            if found is not Likeness.NO:
                return found
        return Likeness.NO

    # Text, for stars inside words

    def _as_text(self, words: tuple[Word, ...]) -> Likeness:
        if not self.loose:
            return Likeness.NO
        texts = {_fold(" ".join(word.text for word in words))}
        name = words[0].literal
        if name is not None:
            texts.add(_fold(" ".join([unversioned(name), *(word.text for word in words[1:])])))
        if any(_text_regex(self.text).fullmatch(text) for text in texts):
            return Likeness.YES
        if any(word.literal is None for word in words):
            tokens = _tokens_of(words)
            patterns = {self.text, self.text.removesuffix(" *")}
            if any(_meet(tokens, tuple(pattern)) for pattern in patterns):
                return Likeness.MAYBE
        return Likeness.NO


def _max(one: Likeness, other: Likeness) -> Likeness:
    return one if one >= other else other


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not word[1:].isdigit()


def _fold(text: str) -> str:
    """Folded word by word; options keep their case, which often means something."""
    return " ".join(word if word.startswith("-") else folded(word) for word in text.split())


@lru_cache(maxsize=1024)
def _text_regex(text: str) -> re.Pattern[str]:
    return re.compile(starred(text), re.DOTALL)


def _alike(option: str, known: Program | None) -> tuple[str, ...]:
    """An option in its one spelling; some stand for two."""
    if known is not None:
        for group in known.alike:
            if option in group[:-1]:
                return tuple(group[-1].split())
    return (option,)


def _said(option: str, known: Program | None) -> set[str]:
    """What an option says: itself, without its value, and one by one if several are run together."""
    name = option.partition("=")[0]
    said = {option, name, *_alike(name, known)}
    if name.startswith("--") and len(name) > 3 and known is not None:
        for group in known.alike:
            for member in group:
                if member.startswith(name):  # shortened
                    said.update((member, *_alike(member, known)))
    if not name.startswith("--") and not (known is not None and known.single):
        for letter in name[1:]:
            said.add(f"-{letter}")
            said.update(_alike(f"-{letter}", known))
    return said


def _has(given: set[str], option: str, known: Program | None) -> bool:
    if option in given:
        return True
    if "*" in option:
        return any(fnmatchcase(each, option) for each in given)
    name, has_value, _ = option.partition("=")
    if has_value:
        return any(
            each.startswith("--")
            and each.partition("=")[2] == option.partition("=")[2]
            and name.startswith(each.partition("=")[0])
            for each in given
        )
    if all(each in given for each in _alike(option, known)):
        return True
    if name.startswith("--"):
        return any(len(each) > 3 and each.startswith("--") and name.startswith(each) for each in given)
    if len(name) > 2 and not (known is not None and known.single):  # several run together
        return all(any(each in given for each in (f"-{x}", *_alike(f"-{x}", known))) for x in name[1:])
    return False


def _respelled(known: Program | None, words: tuple[str, ...]) -> tuple[str, ...]:
    """The words with the sub-command in its one spelling."""
    if known is not None and known.same:
        for count in (2, 1):
            spelled = known.same.get(" ".join(words[:count])) if len(words) >= count else None
            if spelled is not None:
                return (*spelled.split(), *words[count:])
    return words


def _spellings(words: tuple[Word, ...], known: Program | None) -> Iterable[tuple[Word, ...]]:
    """The words, and again with the sub-command in its one spelling."""
    yield words
    if known is None or not known.same:
        return
    places = [
        index
        for index, word in enumerate(words)
        if not _is_option(word.text) and not (index and _takes_value(words[index - 1], known))
    ]
    for count in (2, 1):
        spelled = known.same.get(" ".join(folded(words[place].text) for place in places[:count]))
        if spelled is not None and len(places) >= count:
            first, last = places[0], places[count - 1]
            between = tuple(words[index] for index in range(first, last + 1) if index not in places[:count])
            made = tuple(_plain(text) for text in spelled.split())
            yield (*words[:first], *between, *made, *words[last + 1 :])
            return


def _plain(text: str) -> Word:
    return Word(text, text, (-1, -1), (Piece(text),))


def _takes_value(word: Word, known: Program | None) -> bool:
    return known is not None and word.text in known.values


def _in_order(
    words: tuple[Word, ...], sought: tuple[str, ...], known: Program | None, open_: bool, options: bool
) -> Likeness:
    """Whether the words sought stand among the words, nothing but options and their values before the last of them."""
    best = Likeness.NO
    # index of the next word, of the next one sought, whether the word before may take a value, what is certain so far
    waiting: list[tuple[int, int, bool, Likeness]] = [(0, 0, False, Likeness.YES)]
    seen: set[tuple[int, int, bool, Likeness]] = set()
    while waiting and best is not Likeness.YES:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        index, done, valued, sure = state
        if done == len(sought) and open_:
            best = _max(best, sure)
            continue
        if done < len(sought) and sought[done] == "*":
            waiting.append((index, done + 1, False, sure))
            if index < len(words):
                waiting.append((index + 1, done, False, sure))
            continue
        if index == len(words):
            if done == len(sought):
                best = _max(best, sure)
            continue
        word = words[index]
        if word.literal is None and any(piece.splits for piece in word.pieces):
            # It may be no word, or several: all that is still sought may be in it.
            waiting += [
                (index + 1, further, True, Likeness.MAYBE) for further in range(done, len(sought) + 1)
            ]
            continue
        if _is_option(word.text) and word.literal is not None:
            if done < len(sought) or options or open_:
                waiting.append((index + 1, done, "=" not in word.text, sure))
            continue
        if valued:
            waiting.append((index + 1, done, False, sure))
            if index and _takes_value(words[index - 1], known):
                sure = Likeness.MAYBE  # the table knows it for a value, which another version may not
        if done < len(sought):
            like = _like(word, sought[done])
            if like is not Likeness.NO:
                waiting.append((index + 1, done + 1, False, min(sure, like)))
        if word.literal is None and _could_begin(word, "-"):
            waiting.append((index + 1, done, True, Likeness.MAYBE))
    return best


def _like(word: Word, sought: str) -> Likeness:
    text = word.literal
    if text is not None:
        plain = folded(text)
        alike = fnmatchcase(plain, sought.replace("[", "[[]")) if "*" in sought else plain == sought
        return Likeness.YES if alike else Likeness.NO
    return Likeness.MAYBE if _could_be(word, sought) else Likeness.NO


# Words of which something is not known

_ANY = "\0"  # stands for any characters; it occurs in no command


def _tokens(word: Word) -> list[str]:
    tokens: list[str] = []
    for piece in word.pieces:
        if piece.known and not piece.glob:
            tokens.extend(piece.text.casefold())
        elif not tokens or tokens[-1] != _ANY:
            tokens.append(_ANY)
    return tokens


def _tokens_of(words: tuple[Word, ...]) -> tuple[str, ...]:
    tokens: list[str] = []
    for word in words:
        if tokens:
            tokens.append(" ")
        tokens.extend(_tokens(word))
    return tuple(tokens)


def _could_be(word: Word, sought: str) -> bool:
    """Whether some value of what is unknown makes the word this; a path before it does not matter."""
    tokens = tuple(_tokens(word))
    return _meet(tokens, tuple(sought.casefold())) or _meet(tokens, ("*", "/", *sought.casefold()))


def _could_begin(word: Word, first: str) -> bool:
    tokens = _tokens(word)
    return bool(tokens) and tokens[0] in (_ANY, first)


def _meet(tokens: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether some text is both: `tokens` with its unknown stretches, `pattern` with its stars."""
    here = {0}
    row = _spread(here, pattern)
    for token in tokens:
        following: set[int] = set()
        if token == _ANY:
            following = set(range(min(row), len(pattern) + 1)) if row else set()
        else:
            for place in row:
                if place < len(pattern):
                    if pattern[place] == "*":
                        following.add(place)
                    elif pattern[place] == token:
                        following.add(place + 1)
        row = _spread(following, pattern)
        if not row:
            return False
    return len(pattern) in row


def _spread(places: set[int], pattern: tuple[str, ...]) -> set[int]:
    """With every place that is reached by letting stars be empty."""
    reached = set(places)
    for place in places:
        while place < len(pattern) and pattern[place] == "*":
            place += 1
            reached.add(place)
    return reached
