"""What happens to a call that nobody spoke about, and how its processes are confined.

Lives here: the presets `plan`, `ask`, `accept-edits` and `full`, two knobs each. The default of a preset is the weakest
voice: a rule, a listener, a hook's refusal and a guard are all heard before it. An embedded agent has none until one is
chosen: it allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, assert_never, get_args

from interlock.errors import ConfigError
from interlock.intercept.decisions import ALLOW, Ask, Deny, Verdict
from interlock.tools.call import ToolCall
from interlock.tools.confinement import SandboxMode
from interlock.tools.definition import Effect
from interlock.tools.subject import SubjectKind

Rest: TypeAlias = Literal["deny", "ask", "edits", "allow"]
RESTS: tuple[Rest, ...] = get_args(Rest)  # the strictest first
MODES: tuple[SandboxMode, ...] = get_args(SandboxMode)  # the strictest first


@dataclass(frozen=True, slots=True)
class Preset:
    """Two knobs. Reads run; `rest` says what happens to everything else: it is denied, a person is asked, edits of the
    workspace run and a person is asked for the others, or it is allowed. `sandbox` confines what runs processes.

    Raises:
        ConfigError: a knob has no such position.
    """

    name: str
    rest: Rest
    meaning: str = ""
    sandbox: SandboxMode = "full"

    def __post_init__(self) -> None:
        if self.rest not in RESTS:
            raise ConfigError(f"preset {self.name!r}: rest is one of {', '.join(RESTS)}, not {self.rest!r}")
        if self.sandbox not in MODES:
            raise ConfigError(
                f"preset {self.name!r}: sandbox is one of {', '.join(MODES)}, not {self.sandbox!r}"
            )

    @property
    def by(self) -> str:
        """Who speaks, when the preset decides."""
        return f"preset {self.name}"

    def verdict(self, call: ToolCall) -> tuple[Verdict, str]:
        """The default for this call, and who says so."""
        subject = call.tool.subject
        about = subject.of(call.arguments) if subject is not None else None
        kind = subject.kind if subject is not None else None
        return self.default(call.name, call.effect, kind, about, call.cwd), self.by

    def default(
        self, tool: str, effect: Effect, kind: SubjectKind | None, subject: str | None, cwd: Path | None
    ) -> Verdict:
        """The default for a call of a tool; `kind` and `subject` say what the call is about."""
        if effect is Effect.READ:
            return ALLOW
        match self.rest:
            case "allow":
                return ALLOW
            case "edits":
                if kind == "edit" and subject is not None and cwd is not None and _inside(subject, cwd):
                    return ALLOW
                return Ask(f"{tool} may change something")
            case "ask":
                return Ask(f"{tool} may change something")
            case "deny":
                return Deny(f"{self.by}: only tools that read may run; describe what you would do instead")
            case _:
                assert_never(self.rest)


def _inside(subject: str, cwd: Path) -> bool:
    """Whether a path ends in the workspace, links followed."""
    root = cwd.resolve()
    return (root / subject).resolve().is_relative_to(root)


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("plan", "deny", "tools that read run, the rest is denied", "read-only"),
        Preset("ask", "ask", "tools that read run, for the rest a person is asked"),
        Preset(
            "accept-edits",
            "edits",
            "tools that read run and edits of the workspace too, for the rest a person is asked",
            "workspace-write",
        ),
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
