"""What a rule looks at: one call, without anything that does not matter to a rule.

Lives here: `Action`, made of a call, or of a tool's name and its input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from interlock.policy.names import SUBJECTS, our_name
from interlock.tools.call import ToolCall
from interlock.tools.definition import Effect
from interlock.tools.subject import Subject, SubjectKind

#: Other programs call the path of a file tool so; the tools in the box say `path`.
_OTHER_ARGUMENTS = ("file_path",)


@dataclass(frozen=True, slots=True)
class Action:
    """A call, as rules see it.

    tool: our name. kind, subject: what the call is about, if its tool says so: the command, the path or the address;
    a kind without a subject is a call that leaves it out. cwd: the workspace root, absolute; rules with relative paths
    are anchored there, and so are relative subjects. harmless: the tool declares that it changes nothing.
    """

    tool: str
    arguments: Mapping[str, Any]
    kind: SubjectKind | None
    subject: str | None
    cwd: Path
    harmless: bool = False
    argument: str | None = None  # the name of the argument that is the subject
    base: Path | None = None  # where relative paths of the call begin, if not in the workspace

    @classmethod
    def of(cls, call: ToolCall) -> Self:
        """The action of a call. An agent without a working folder works in its tool's, or in the process's."""
        subject = call.tool.subject
        cwd = call.cwd or (subject.base if subject is not None else None) or Path.cwd()
        return cls._about(call.name, call.arguments, subject, cwd, call.effect is Effect.READ)

    @classmethod
    def named(cls, tool: str, arguments: Mapping[str, Any] | str, cwd: Path) -> Self:
        """The action of a tool in the box, by any of its names; text is the command, path or address itself."""
        name = our_name(tool)
        subject = SUBJECTS.get(name)
        if isinstance(arguments, str):
            arguments = {subject.argument: arguments} if subject is not None else {}
        elif subject is not None and subject.argument not in arguments:
            for other in _OTHER_ARGUMENTS:
                if other in arguments:
                    subject = Subject(subject.kind, other)
        harmless = subject is not None and subject.kind in ("read", "url")
        return cls._about(name, arguments, subject, cwd.absolute(), harmless)

    @classmethod
    def _about(
        cls, tool: str, arguments: Mapping[str, Any], subject: Subject | None, cwd: Path, harmless: bool
    ) -> Self:
        if subject is None:
            return cls(tool, arguments, None, None, cwd, harmless)
        about = subject.of(arguments)
        return cls(tool, arguments, subject.kind, about, cwd, harmless, subject.argument, subject.base)
