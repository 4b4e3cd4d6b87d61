"""A value as the model reads it.

Lives here: `rendered`, one place for the body's own result and for one that somebody put in its stead.
"""

from __future__ import annotations

import msgspec

from interlock.errors import said_error
from interlock.log.messages import Text
from interlock.log.strictjson import JSON, NotJSON, check_text
from interlock.tools.arguments import InvalidOutput
from interlock.tools.call import ToolCall


def rendered(call: ToolCall, value: JSON) -> tuple[Text, ...]:
    """The value as the model reads it.

    Raises:
        InvalidOutput: the tool's renderer failed.
    """
    render = call.tool.render
    if render is None:
        return (Text(value if type(value) is str else msgspec.json.encode(value).decode()),)
    try:
        text: object = render(value)
    except Exception as error:  # noqa: BLE001  # a renderer's own failure
        raise InvalidOutput(f"its renderer failed: {said_error(error)}") from None
    if type(text) is not str:
        raise InvalidOutput(f"its renderer gave {type(text).__name__}, not text")
    try:
        return (Text(check_text(text)),)
    except NotJSON as error:
        raise InvalidOutput(f"its renderer gave {error}") from None
