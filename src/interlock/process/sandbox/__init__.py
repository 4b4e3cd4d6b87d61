"""The sandbox that commands run in.

Lives here, one concept a module: `sandbox` (the whole), `view` and `people` (what of the machine and of people's own is
seen), `protected` (what stays as it is where one may write), `limits`, `seccomp`, `supervisor` (the shell inside),
`problem` (why there can be none), `settings`.
"""

from __future__ import annotations

from interlock.process.sandbox.limits import Limits
from interlock.process.sandbox.protected import PROTECTED
from interlock.process.sandbox.sandbox import Confined, Sandbox
from interlock.process.sandbox.settings import SandboxSettings, sandbox_settings

__all__ = ["PROTECTED", "Confined", "Limits", "Sandbox", "SandboxSettings", "sandbox_settings"]
