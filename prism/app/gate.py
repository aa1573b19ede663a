"""What of the server a visitor reaches: the page's own routes, with bodies of bounded size, and nothing else.

Gradio also offers routes that store files, serve them and fetch them from elsewhere, and it does so for any value of a
message that looks like a file of its own. The page needs none of this: all images travel inside messages. What is
closed here cannot be misused, whatever it does.
"""

import json
import re
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prism.app.intake import MOST_BYTES

MOST_BODY = MOST_BYTES * 4 // 3 + 1_000_000  # a file in base64, and the rest of a message
OPEN = re.compile(
    r"/(?:|config|theme\.css|manifest\.json|favicon\.ico|robots\.txt|(?:assets|static|svelte)/[\w./@-]+"
    r"|gradio_api/(?:queue/join|queue/data|heartbeat/\w+|startup-events|app_id))/?"
)
# The browser itself refuses what would leave this server; gradio's templates are evaluated in the page.
POLICY = (
    "default-src 'self' data: blob:; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'"
    "; object-src 'none'; base-uri 'self'; frame-ancestors 'self'"
)


class Gate:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := _refusal(scope)) is not None:
            await refusal(scope, receive, send)
        elif scope["type"] == "http" and scope["method"] == "POST":
            body = await _body(receive)
            if _names_a_file(body):
                await PlainTextResponse("a message must not contain files", 400)(scope, receive, send)
            else:
                await self.app(scope, _replayed(body, receive), _guarded(send))
        elif scope["type"] in ("http", "lifespan"):
            await self.app(scope, receive, _guarded(send))


def _refusal(scope: Scope) -> PlainTextResponse | None:
    if not OPEN.fullmatch(scope["path"]) or ".." in scope["path"]:
        return PlainTextResponse("there is nothing here", 404)
    if scope["method"] in ("GET", "HEAD"):
        return None
    length = Headers(scope=scope).get("content-length", "")
    if not length.isdecimal():
        return PlainTextResponse("a message must state its length", 411)  # uvicorn holds it to that
    if int(length) > MOST_BODY:
        return PlainTextResponse("the message is too long", 413)
    return None


async def _body(receive: Receive) -> bytes:
    """As long as it was said to be."""
    parts, more = [], True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _names_a_file(body: bytes) -> bool:
    """Whether gradio would take a part of the message for a file, to be fetched from `path`. What is no JSON is left
    to the server to refuse."""
    try:
        return _has_path(json.loads(body))
    except RecursionError:
        return True
    except ValueError:
        return False


def _has_path(value: Any) -> bool:
    if isinstance(value, dict):
        return "path" in value or any(map(_has_path, value.values()))
    return isinstance(value, list) and any(map(_has_path, value))


def _replayed(body: bytes, receive: Receive) -> Receive:
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def again() -> Message:
        return next(messages, None) or await receive()

    return again


def _guarded(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Content-Security-Policy"] = POLICY
            headers["X-Content-Type-Options"] = "nosniff"
            headers["Referrer-Policy"] = "no-referrer"
        await send(message)

    return sent
