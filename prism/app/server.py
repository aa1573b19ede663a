"""The page, and answers to visitors.

An answer is computed from one message alone: the browser sends the image, what is painted over it and the mask. So
visitors never see each other's images, nothing is kept, and a lost message harms nobody.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from prism.analysis.pairs import hide
from prism.app.drawing import ASSETS, TEMPLATES, results
from prism.app.explanation import explain
from prism.app.intake import MOST_BYTES, as_pixels, read_mask, read_url
from prism.app.networks import Players, open_players
from prism.app.samples import Examples, Sample, examples, samples
from prism.model.weights import shipped
from prism.occlusion.masks import REFERENCE, mask_generator
from prism.occlusion.settings import CLEAN, Setting

SHIPPED = {"Scenes": "scenes", "Photographs": "imagenette"}  # the page's name for them: the tag of their weights
AT_ONCE = 2  # answers
MOST_WAITING = 24  # visitors in the queue; the last of them waits about five seconds
MOST_BODY = 2 * MOST_BYTES + 10_000  # an image, a mask, and the rest of a message
PATIENCE = 20.0  # seconds for a message to arrive
MOST_CONNECTIONS = 256
# The browser itself refuses what would leave this server, and scripts that are not the page's own.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Playground(NamedTuple):
    name: str
    players: Players
    samples: list[Sample]
    examples: Examples | None


class Refused(Exception):
    def __init__(self, status: int, reason: str):
        self.status, self.reason = status, reason


class Queue:
    """A few answers at a time; a limited number of visitors wait, and more are told to come back."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING):
        self.turns, self.places = asyncio.Semaphore(at_once), at_once + most_waiting

    async def answer(self, request: Request, compute: Callable[..., Any], *arguments: Any) -> Any:
        if not self.places:
            raise Refused(503, "Many visitors are waiting. Trying again in a moment.")
        self.places -= 1
        try:
            async with self.turns:
                if await request.is_disconnected():
                    raise ClientDisconnect
                return await run_in_threadpool(compute, *arguments)
        finally:
            self.places += 1


def open_playgrounds(checkpoint: Path | None, baseline: Path | None, folder: Path | None) -> list[Playground]:
    """Networks from files, and images to try them on: from a folder, or scenes. Without files, those of the package."""
    if checkpoint is not None:
        players = open_players(checkpoint, baseline)
        return [Playground(checkpoint.name, players, samples(players, folder), examples(players, folder))]
    if baseline is not None:
        raise ValueError("--baseline needs --checkpoint, a PRISM classifier trained on the same classes")
    found = []
    for name, tag in SHIPPED.items():
        if file := shipped(f"prism_nano.{tag}"):
            players = open_players(file, shipped(f"pvt_v2_b0.{tag}"))
            own = None if players.know_scenes else folder
            found.append(Playground(name, players, samples(players, own, stories=True), examples(players, own)))
    if not found:
        raise ValueError("this installation ships no weights: pass --checkpoint FILE.safetensors")
    return found


def application(playgrounds: list[Playground], queue: Queue | None = None) -> Starlette:
    by_name = {playground.name: playground for playground in playgrounds}
    page = TEMPLATES.get_template("page.html").render(playgrounds=playgrounds, reference=REFERENCE, colour=_css_colour)
    queue = queue or Queue()

    async def answered(request: Request) -> Response:
        message = await _message(request)
        return JSONResponse(await queue.answer(request, answer, by_name, message), headers=HEADERS)

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        return JSONResponse({"error": error.reason}, error.status, headers=HEADERS)

    async def gone(_: Request, __: Exception) -> Response:
        return PlainTextResponse("", 499)  # nobody reads it

    def fixed(content: str, kind: str) -> Callable[[Request], Response]:
        return lambda _: Response(content, media_type=kind, headers=HEADERS)

    return Starlette(
        routes=[
            Route("/", lambda _: HTMLResponse(page, headers=HEADERS)),
            Route("/page.css", fixed((ASSETS / "page.css").read_text(), "text/css")),
            Route("/page.js", fixed((ASSETS / "page.js").read_text(), "text/javascript")),
            Route("/answer", answered, methods=["POST"]),
        ],
        exception_handlers={Refused: refused, ClientDisconnect: gone},
    )


def serve(playgrounds: list[Playground], host: str, port: int) -> None:
    """Open the page to visitors, until interrupted."""
    _check_free(host, port)
    print(f"the playground is at http://{host}:{port}; Ctrl-C ends it", flush=True)
    uvicorn.run(
        application(playgrounds),
        host=host,
        port=port,
        log_level="error",
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
    )


def answer(playgrounds: dict[str, Playground], message: dict[str, Any]) -> dict[str, str]:
    """The results, as HTML."""
    playground = playgrounds.get(_text(message, "set"))
    if playground is None:
        raise Refused(400, f"the sets are {', '.join(playgrounds)}")
    players = playground.players
    try:
        image = as_pixels(read_url(_text(message, "image")), players.size)
        painted = read_mask(_text(message, "mask"), players.size)
        setting, seed = _setting(message)
        pair = hide(image, setting, mask_generator(0, seed), torch.tensor(players.ours.mean), painted)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    found = explain(players, pair)
    return {"results": results(found, players, playground.examples, _text(message, "truth"))}


async def _message(request: Request) -> dict[str, Any]:
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > MOST_BODY:
                    raise Refused(413, "the message is too long")
        found = json.loads(body)
    except TimeoutError:
        raise Refused(408, "the message did not arrive in time") from None
    except (ValueError, RecursionError):
        raise Refused(400, "the message is not JSON") from None
    if not isinstance(found, dict):
        raise Refused(400, "the message is not an object")
    return found


def _setting(message: dict[str, Any]) -> tuple[Setting, int]:
    """What hides parts of the image in addition to the brush, and the seed of its place."""
    kind, strength, seed = (message.get(field) for field in ("kind", "strength", "seed"))
    if not kind:
        return CLEAN, 0
    if isinstance(kind, str) and isinstance(strength, int | float) and isinstance(seed, int) and 0 <= seed < 2**32:
        return Setting(kind, strength), seed
    raise ValueError("a mask is a kind, a strength and a seed")


def _text(message: dict[str, Any], field: str) -> str:
    found = message.get(field)
    return found if isinstance(found, str) else ""


def _css_colour(players: Players) -> str:
    """Of what is hidden: the mean of the data, 0 after normalisation."""
    return f"rgb({' '.join(str(round(255 * part)) for part in players.ours.mean)})"


def _check_free(host: str, port: int) -> None:
    if not 0 < port < 65536:
        raise ValueError(f"--port must be from 1 to 65535, got {port}")
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        socket.create_server(place, family=family).close()
    except OSError as error:
        raise ValueError(f"cannot listen on {host}:{port} ({error}): choose another --port or --host") from None
