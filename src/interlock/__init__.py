"""Interlock: an agent harness in which every decision is typed, ordered and on the record.

The public names, loaded on first use, nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.errors import AlreadyDecided as AlreadyDecided
    from interlock.errors import AnswerMismatch as AnswerMismatch
    from interlock.errors import ApprovalError as ApprovalError
    from interlock.errors import ConfigError as ConfigError
    from interlock.errors import DuplicateMessage as DuplicateMessage
    from interlock.errors import DuplicateTool as DuplicateTool
    from interlock.errors import HookContractError as HookContractError
    from interlock.errors import IllegalFact as IllegalFact
    from interlock.errors import InboxError as InboxError
    from interlock.errors import InboxFull as InboxFull
    from interlock.errors import InputDropped as InputDropped
    from interlock.errors import InterlockError as InterlockError
    from interlock.errors import InvalidMessage as InvalidMessage
    from interlock.errors import LeaseLost as LeaseLost
    from interlock.errors import LetterRefused as LetterRefused
    from interlock.errors import MailboxFull as MailboxFull
    from interlock.errors import MayNotApprove as MayNotApprove
    from interlock.errors import MessageTooLarge as MessageTooLarge
    from interlock.errors import ModelFailure as ModelFailure
    from interlock.errors import NotTaken as NotTaken
    from interlock.errors import ReadOnlySession as ReadOnlySession
    from interlock.errors import SessionBusy as SessionBusy
    from interlock.errors import SessionClosed as SessionClosed
    from interlock.errors import SessionErased as SessionErased
    from interlock.errors import SessionError as SessionError
    from interlock.errors import StoreFailed as StoreFailed
    from interlock.errors import ToolError as ToolError
    from interlock.errors import UnknownApproval as UnknownApproval
    from interlock.errors import UnknownFact as UnknownFact
    from interlock.errors import UnknownModel as UnknownModel
    from interlock.errors import UnknownSession as UnknownSession
    from interlock.errors import UnknownTool as UnknownTool
    from interlock.errors import UnreadableLog as UnreadableLog
    from interlock.errors import UsageError as UsageError
    from interlock.errors import WrongThread as WrongThread
    from interlock.intercept.decisions import Accept as Accept
    from interlock.intercept.decisions import Advise as Advise
    from interlock.intercept.decisions import Allow as Allow
    from interlock.intercept.decisions import Ask as Ask
    from interlock.intercept.decisions import Block as Block
    from interlock.intercept.decisions import Continue as Continue
    from interlock.intercept.decisions import Deny as Deny
    from interlock.intercept.decisions import Enter as Enter
    from interlock.intercept.decisions import GiveUp as GiveUp
    from interlock.intercept.decisions import Refuse as Refuse
    from interlock.intercept.decisions import Reject as Reject
    from interlock.intercept.decisions import Replace as Replace
    from interlock.intercept.decisions import Retry as Retry
    from interlock.intercept.decisions import Rewrite as Rewrite
    from interlock.intercept.decisions import Settings as Settings
    from interlock.intercept.scope import Scope as Scope
    from interlock.intercept.signal import Signal as Signal
    from interlock.log.erasing import erase_sessions as erase_sessions
    from interlock.log.event import Event as Event
    from interlock.log.facts import Fact as Fact
    from interlock.log.facts import register_fact as register_fact
    from interlock.log.forking import fork_session as fork_session
    from interlock.log.laws import check as check
    from interlock.log.messages import Message as Message
    from interlock.log.messages import Reasoning as Reasoning
    from interlock.log.messages import Source as Source
    from interlock.log.messages import Text as Text
    from interlock.log.messages import ToolOutcome as ToolOutcome
    from interlock.log.messages import ToolUse as ToolUse
    from interlock.log.reasons import Cause as Cause
    from interlock.log.reasons import EndReason as EndReason
    from interlock.log.redaction.redactor import Redactor as Redactor
    from interlock.log.retention import prune_sessions as prune_sessions
    from interlock.log.session import Session as Session
    from interlock.log.session import open_session as open_session
    from interlock.log.stores.address import open_store as open_store
    from interlock.log.stores.jsonl.store import JSONLStore as JSONLStore
    from interlock.log.stores.memory.store import MemoryStore as MemoryStore
    from interlock.log.stores.postgres.store import PostgresStore as PostgresStore
    from interlock.log.stores.query import Match as Match
    from interlock.log.stores.query import Where as Where
    from interlock.log.stores.sqlite.store import SQLiteStore as SQLiteStore
    from interlock.loop.agent import Agent as Agent
    from interlock.loop.budget import Budget as Budget
    from interlock.loop.harness import Harness as Harness
    from interlock.loop.hooks import HOOK_EVENTS as HOOK_EVENTS
    from interlock.loop.hooks import HookEvent as HookEvent
    from interlock.loop.hooks import HookResult as HookResult
    from interlock.loop.hooks import PostToolContext as PostToolContext
    from interlock.loop.hooks import PreToolContext as PreToolContext
    from interlock.loop.hooks import StopContext as StopContext
    from interlock.loop.hooks import UserPromptContext as UserPromptContext
    from interlock.loop.mailbox import Mailbox as Mailbox
    from interlock.loop.mailbox import Posted as Posted
    from interlock.loop.points import Attempt as Attempt
    from interlock.loop.points import CallSettings as CallSettings
    from interlock.loop.points import Proposal as Proposal
    from interlock.loop.points import SessionEnd as SessionEnd
    from interlock.loop.points import SessionStart as SessionStart
    from interlock.loop.points import Stopping as Stopping
    from interlock.loop.result import Receipt as Receipt
    from interlock.loop.result import TurnResult as TurnResult
    from interlock.loop.status import Status as Status
    from interlock.models.protocol import Model as Model
    from interlock.models.retry import RetryPolicy as RetryPolicy
    from interlock.policy.approval import AnswerLater as AnswerLater
    from interlock.policy.approval import ApprovalRequest as ApprovalRequest
    from interlock.policy.approval import Approved as Approved
    from interlock.policy.approval import Approver as Approver
    from interlock.policy.approval import Principal as Principal
    from interlock.policy.approval import Rejected as Rejected
    from interlock.policy.ceiling import Ceiling as Ceiling
    from interlock.policy.preset import Preset as Preset
    from interlock.policy.rules.rule import RuleError as RuleError
    from interlock.policy.rules.ruleset import RuleSet as RuleSet
    from interlock.policy.settings import load_rules as load_rules
    from interlock.policy.stdio import StdioApprover as StdioApprover
    from interlock.policy.terminal import TerminalApprover as TerminalApprover
    from interlock.process.sandbox import SandboxSettings as SandboxSettings
    from interlock.tools.call import ToolCall as ToolCall
    from interlock.tools.call import ToolOutput as ToolOutput
    from interlock.tools.call import ToolResult as ToolResult
    from interlock.tools.call import tool_error as tool_error
    from interlock.tools.call import tool_success as tool_success
    from interlock.tools.claims import Claims as Claims
    from interlock.tools.claims import Concurrency as Concurrency
    from interlock.tools.context import ToolContext as ToolContext
    from interlock.tools.definition import Effect as Effect
    from interlock.tools.definition import StopMode as StopMode
    from interlock.tools.definition import Tool as Tool
    from interlock.tools.definition import tool as tool
    from interlock.tools.subject import Subject as Subject

from interlock.lazy import names
from interlock.version import VERSION

__version__ = VERSION

_HOME = {
    "Accept": "interlock.intercept.decisions",
    "Advise": "interlock.intercept.decisions",
    "Agent": "interlock.loop.agent",
    "Allow": "interlock.intercept.decisions",
    "AlreadyDecided": "interlock.errors",
    "AnswerLater": "interlock.policy.approval",
    "AnswerMismatch": "interlock.errors",
    "ApprovalError": "interlock.errors",
    "ApprovalRequest": "interlock.policy.approval",
    "Approved": "interlock.policy.approval",
    "Approver": "interlock.policy.approval",
    "Ask": "interlock.intercept.decisions",
    "Attempt": "interlock.loop.points",
    "Block": "interlock.intercept.decisions",
    "Budget": "interlock.loop.budget",
    "CallSettings": "interlock.loop.points",
    "Cause": "interlock.log.reasons",
    "Ceiling": "interlock.policy.ceiling",
    "Claims": "interlock.tools.claims",
    "Concurrency": "interlock.tools.claims",
    "ConfigError": "interlock.errors",
    "Continue": "interlock.intercept.decisions",
    "Deny": "interlock.intercept.decisions",
    "DuplicateMessage": "interlock.errors",
    "DuplicateTool": "interlock.errors",
    "Effect": "interlock.tools.definition",
    "EndReason": "interlock.log.reasons",
    "Enter": "interlock.intercept.decisions",
    "Event": "interlock.log.event",
    "Fact": "interlock.log.facts",
    "GiveUp": "interlock.intercept.decisions",
    "HOOK_EVENTS": "interlock.loop.hooks",
    "Harness": "interlock.loop.harness",
    "HookContractError": "interlock.errors",
    "HookEvent": "interlock.loop.hooks",
    "HookResult": "interlock.loop.hooks",
    "IllegalFact": "interlock.errors",
    "InboxError": "interlock.errors",
    "InboxFull": "interlock.errors",
    "InputDropped": "interlock.errors",
    "InterlockError": "interlock.errors",
    "InvalidMessage": "interlock.errors",
    "LeaseLost": "interlock.errors",
    "LetterRefused": "interlock.errors",
    "Mailbox": "interlock.loop.mailbox",
    "MailboxFull": "interlock.errors",
    "Match": "interlock.log.stores.query",
    "JSONLStore": "interlock.log.stores.jsonl.store",
    "MayNotApprove": "interlock.errors",
    "MemoryStore": "interlock.log.stores.memory.store",
    "Message": "interlock.log.messages",
    "MessageTooLarge": "interlock.errors",
    "Model": "interlock.models.protocol",
    "ModelFailure": "interlock.errors",
    "NotTaken": "interlock.errors",
    "PostToolContext": "interlock.loop.hooks",
    "Posted": "interlock.loop.mailbox",
    "PostgresStore": "interlock.log.stores.postgres.store",
    "PreToolContext": "interlock.loop.hooks",
    "Preset": "interlock.policy.preset",
    "Principal": "interlock.policy.approval",
    "Proposal": "interlock.loop.points",
    "ReadOnlySession": "interlock.errors",
    "Reasoning": "interlock.log.messages",
    "Receipt": "interlock.loop.result",
    "Redactor": "interlock.log.redaction.redactor",
    "Refuse": "interlock.intercept.decisions",
    "Reject": "interlock.intercept.decisions",
    "Rejected": "interlock.policy.approval",
    "Replace": "interlock.intercept.decisions",
    "Retry": "interlock.intercept.decisions",
    "RetryPolicy": "interlock.models.retry",
    "Rewrite": "interlock.intercept.decisions",
    "RuleError": "interlock.policy.rules.rule",
    "RuleSet": "interlock.policy.rules.ruleset",
    "SQLiteStore": "interlock.log.stores.sqlite.store",
    "SandboxSettings": "interlock.process.sandbox",
    "Scope": "interlock.intercept.scope",
    "Session": "interlock.log.session",
    "SessionBusy": "interlock.errors",
    "SessionClosed": "interlock.errors",
    "SessionEnd": "interlock.loop.points",
    "SessionErased": "interlock.errors",
    "SessionError": "interlock.errors",
    "SessionStart": "interlock.loop.points",
    "Settings": "interlock.intercept.decisions",
    "Signal": "interlock.intercept.signal",
    "Source": "interlock.log.messages",
    "Status": "interlock.loop.status",
    "StdioApprover": "interlock.policy.stdio",
    "StopContext": "interlock.loop.hooks",
    "StopMode": "interlock.tools.definition",
    "Stopping": "interlock.loop.points",
    "StoreFailed": "interlock.errors",
    "Subject": "interlock.tools.subject",
    "TerminalApprover": "interlock.policy.terminal",
    "Text": "interlock.log.messages",
    "Tool": "interlock.tools.definition",
    "ToolCall": "interlock.tools.call",
    "ToolContext": "interlock.tools.context",
    "ToolError": "interlock.errors",
    "ToolOutcome": "interlock.log.messages",
    "ToolOutput": "interlock.tools.call",
    "ToolResult": "interlock.tools.call",
    "ToolUse": "interlock.log.messages",
    "TurnResult": "interlock.loop.result",
    "UnknownApproval": "interlock.errors",
    "UnknownFact": "interlock.errors",
    "UnknownModel": "interlock.errors",
    "UnknownSession": "interlock.errors",
    "UnknownTool": "interlock.errors",
    "UnreadableLog": "interlock.errors",
    "UsageError": "interlock.errors",
    "UserPromptContext": "interlock.loop.hooks",
    "Where": "interlock.log.stores.query",
    "WrongThread": "interlock.errors",
    "check": "interlock.log.laws",
    "erase_sessions": "interlock.log.erasing",
    "fork_session": "interlock.log.forking",
    "load_rules": "interlock.policy.settings",
    "open_session": "interlock.log.session",
    "open_store": "interlock.log.stores.address",
    "prune_sessions": "interlock.log.retention",
    "register_fact": "interlock.log.facts",
    "tool": "interlock.tools.definition",
    "tool_error": "interlock.tools.call",
    "tool_success": "interlock.tools.call",
}
__all__ = list(_HOME)

__getattr__, __dir__ = names(__name__, _HOME)
