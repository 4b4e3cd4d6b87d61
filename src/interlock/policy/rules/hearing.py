"""From what was found at each part of a call to one ruling.

Lives here: `Hearing`. Deny beats ask, ask beats allow; a call is allowed only if every part that needs a rule has one
that allows it and nothing calls for caution.
"""

from __future__ import annotations

from collections.abc import Sequence

from interlock.policy.rules.matching import Entry
from interlock.policy.rules.rule import Effect, Rule
from interlock.policy.rules.ruling import Part, PartKind, Ruling

_DONE: dict[Effect, str] = {"deny": "denied", "ask": "asked about", "allow": "allowed"}


class Hearing:
    """What has been found so far. The order in which things are noted never changes the verdict."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._found: dict[Effect, list[tuple[int, Rule, Part]]] = {"deny": [], "ask": [], "allow": []}
        self._cautions: list[str] = []
        self._missing: Part | None = None
        self._needed = 0

    def part(
        self,
        kind: PartKind,
        text: str,
        *,
        deny: Sequence[Entry] = (),
        ask: Sequence[Entry] = (),
        allow: Sequence[Entry] = (),
        needs: str | None = None,
        else_: str = "",
    ) -> Part:
        """Note a part, and which rules matched it.

        Args:
            needs: why the call cannot be allowed without an allow rule for this part; None if it can.
            else_: why nothing is said of it, if no rule matched and none is needed.
        """
        said: dict[Effect, Sequence[Entry]] = {"deny": deny, "ask": ask, "allow": allow}
        effect = next((effect for effect, entries in said.items() if entries), None)
        if effect is None:
            made = Part(kind, text, None, None, needs if needs is not None else else_)
        else:
            first = min(said[effect], key=_order).rule
            made = Part(kind, text, effect, first, f"{_DONE[effect]} by {first.text} ({first.where})")
        self.parts.append(made)
        for name, entries in said.items():
            self._found[name] += [(entry.order, entry.rule, made) for entry in entries]
        if needs is not None:
            self._needed += 1
            if effect is None and self._missing is None:
                self._missing = made
        return made

    def caution(self, text: str, why: str) -> None:
        """Note something that may not be approved without a person, whatever allow rules say."""
        self.parts.append(Part("doubt", text, "ask", None, why))
        self._cautions.append(why)

    def ruling(self) -> Ruling:
        matched = tuple(
            dict.fromkeys(
                rule for found in self._found.values() for _, rule, _ in sorted(found, key=_position)
            )
        )
        restraining: tuple[Effect, ...] = ("deny", "ask")
        for effect in restraining:
            if deciding := self._found[effect]:
                _, rule, part = min(deciding, key=_position)
                return Ruling(effect, rule, f"{_shown(part)} is {part.why}", tuple(self.parts), matched)
        if self._cautions:
            more = len(self._cautions) - 1
            said = self._cautions[0] + (f" (and {more} more)" if more else "")
            return Ruling("ask", None, said, tuple(self.parts), matched)
        if self._missing is not None:
            return Ruling(None, None, self._missing.why, tuple(self.parts), matched)
        if allowing := self._found["allow"]:
            _, rule, part = min(allowing, key=_position)
            return Ruling("allow", rule, f"{_shown(part)} is {part.why}", tuple(self.parts), matched)
        if self._needed == 0 and self.parts:
            return Ruling("allow", None, "nothing in it needs a rule", tuple(self.parts), matched)
        return Ruling(None, None, "no rule speaks of it", tuple(self.parts), matched)


def _order(entry: Entry) -> int:
    return entry.order


def _position(found: tuple[int, Rule, Part]) -> int:
    return found[0]


def _shown(part: Part) -> str:
    return f"the {part.kind} `{part.text}`" if part.kind in ("read", "edit") else f"`{part.text}`"
