"""What happens to a call that nobody spoke about.

Lives here: the presets `plan`, `ask` and `full`. A preset gives the default, the weakest voice: a rule, a listener, a
hook's refusal and a guard are all heard before it. An embedded agent has none until one is chosen: it allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

from interlock.errors import ConfigError
from interlock.intercept.decisions import ALLOW, Ask, Deny, Verdict
from interlock.tools.call import ToolCall
from interlock.tools.definition import Effect

Rest = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Preset:
    """Reads run; `rest` says what happens to everything else."""

    name: str
    rest: Rest
    meaning: str

    def verdict(self, call: ToolCall) -> tuple[Verdict, str]:
        """The default for this call, and who says so."""
        by = f"preset {self.name}"
        if call.effect is Effect.READ:
            return ALLOW, by
        match self.rest:
            case "allow":
                return ALLOW, by
            case "ask":
                return Ask(f"{call.name} may change something"), by
            case "deny":
                return Deny(f"{by}: only tools that read may run; describe what you would do instead"), by
            case _:
                assert_never(self.rest)


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("plan", "deny", "tools that read run, the rest is denied"),
        Preset("ask", "ask", "tools that read run, for the rest a person is asked"),
        Preset("full", "allow", "everything runs"),
    )
}


def preset(name: str) -> Preset:
    """
    Raises:
        ConfigError: there is none of that name.
    """
    found = PRESETS.get(name)
    if found is None:
        raise ConfigError(f"no preset {name!r}: choose one of {', '.join(PRESETS)}")
    return found
