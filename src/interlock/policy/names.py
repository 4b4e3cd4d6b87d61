"""What tools are called: here, and in the rules and hooks that people already have.

Lives here: the names of the tools in the box both ways, what their calls are about, and the names that stand for a kind
of call in a rule: `Bash(...)` speaks of commands, `Read(...)` of what reads a path, `Edit(...)` of what writes one,
`WebFetch(...)` of what fetches an address. Names only: policy does not know the tools themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from interlock.tools.subject import Subject, SubjectKind

#: Our name of each tool in the box, and Claude Code's.
CLAUDE: Mapping[str, str] = MappingProxyType(
    {"bash": "Bash", "read": "Read", "write": "Write", "edit": "Edit", "glob": "Glob", "grep": "Grep"}
)
OURS: Mapping[str, str] = MappingProxyType({theirs: ours for ours, theirs in CLAUDE.items()})

#: The name that speaks of every call of a kind, whatever its tool is called.
KINDS: Mapping[SubjectKind, str] = MappingProxyType(
    {"command": "Bash", "read": "Read", "edit": "Edit", "url": "WebFetch"}
)
KIND_OF: Mapping[str, SubjectKind] = MappingProxyType({name: kind for kind, name in KINDS.items()})

#: What the calls of known tools are about: those in the box by our name, others by the name they have elsewhere.
SUBJECTS: Mapping[str, Subject] = MappingProxyType(
    {
        "bash": Subject("command", "command"),
        "read": Subject("read", "path"),
        "glob": Subject("read", "path", "."),
        "grep": Subject("read", "path", "."),
        "write": Subject("edit", "path"),
        "edit": Subject("edit", "path"),
        "MultiEdit": Subject("edit", "file_path"),
        "NotebookEdit": Subject("edit", "notebook_path"),
        "NotebookRead": Subject("read", "notebook_path"),
        "LS": Subject("read", "path", "."),
        "WebFetch": Subject("url", "url"),
    }
)

#: Tools of Claude Code that have no counterpart here: a rule may name them, and lint does not call them unknown.
ELSEWHERE = frozenset(
    {
        "Agent", "AskUserQuestion", "BashOutput", "Cd", "EnterPlanMode", "ExitPlanMode", "KillShell", "LS", "LSP",
        "ListMcpResources", "Monitor", "MultiEdit", "NotebookEdit", "NotebookRead", "PowerShell", "ReadMcpResource",
        "SendMessage", "Skill", "SlashCommand", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop",
        "TaskUpdate", "TodoRead", "TodoWrite", "ToolSearch", "WebFetch", "WebSearch",
    }
)  # fmt: skip

#: Rules of these with a path are taken and never consulted, as where they come from: `Edit` and `Read` cover them.
UNCONSULTED: Mapping[str, str] = MappingProxyType(
    {"Write": "Edit", "NotebookEdit": "Edit", "MultiEdit": "Edit", "Glob": "Read"}
)

#: An argument that narrows a search to files of some name.
NARROWING: Mapping[str, str] = MappingProxyType({"grep": "glob", "glob": "pattern"})

#: Tools that start an agent, and the arguments that may name it: `Agent(Name)`.
AGENT_TOOLS = frozenset({"Agent", "Task", "agent", "task"})
AGENT_ARGUMENTS = ("subagent_type", "agent_type", "agent", "name")


def rule_names(tool: str) -> tuple[str, ...]:
    """What a rule may call a tool: our name, then the other one if there is one."""
    other = CLAUDE.get(tool)
    return (tool,) if other is None else (tool, other)


def our_name(name: str) -> str:
    """Our name of a tool, by any name it has: `Bash` is `bash`. A name that is not known is returned as it is."""
    return OURS.get(name, name)
