"""Outside hooks: programs that speak the hook protocols of Claude Code, Codex and Gemini CLI.

What happened (`event`) is told to handlers (`handler`) found in configuration files (`files`, kept current by `watch`,
held back by `trust`), if they match (`matching`), in the words of their dialect (`dialects`), by a process or a
request (`run`). What they answer (`verdict`) is folded in declared order (`fold`).
"""
