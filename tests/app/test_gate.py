"""Of all that a gradio server offers, visitors reach what the page needs."""

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from prism.app.gate import MOST_BODY, Gate


async def echo(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


@pytest.fixture(scope="module")
def client() -> TestClient:
    everything = Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST", "PUT", "DELETE"])])
    return TestClient(Gate(everything))


@pytest.mark.parametrize(
    "path",
    ["/", "/config", "/theme.css", "/assets/Index-a_B1.js", "/static/fonts/a/b.woff2", "/gradio_api/queue/data?x=1"],
)
def test_the_page_is_reached_and_told_to_stay_at_home(client: TestClient, path: str):
    answer = client.get(path)
    assert answer.status_code == 200
    assert "default-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file/etc/passwd",
        "/file=README.md",
        "/gradio_api/proxy=http://127.0.0.1/",
        "/gradio_api/upload",
        "/gradio_api/upload_progress",
        "/gradio_api/component_server",
        "/gradio_api/process_recording",
        "/gradio_api/vibe-code",
        "/gradio_api/run/shown",
        "/gradio_api/call/shown",
        "/gradio_api/info",
        "/gradio_api/custom_component/1/client/component/x.py",
        "/gradio_api/stream/a/b/c/playlist-file",
        "/monitoring",
        "/docs",
        "/openapi.json",
        "/assets/../../etc/passwd",
        "/static/%2e%2e/%2e%2e/secret",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_nothing_else_is_there(client: TestClient, path: str, method: str):
    assert client.request(method, path).status_code == 404


def test_a_message_names_no_file(client: TestClient):
    """Gradio would fetch it, whatever the component, before any code of ours runs."""
    join = "/gradio_api/queue/join"
    innocent = {"data": [{"image": "data:image/png;base64,path", "mask": ""}, "Brush"], "event_data": None}
    assert client.post(join, json=innocent).text != ""
    assert client.post(join, json=innocent).status_code == 200
    file = {"path": "http://elsewhere/huge.iso", "meta": {"_type": "gradio.FileData"}}
    for body in ({"data": [file]}, {"data": [{"image": [file]}]}, {"event_data": {"a": {"b": file}}}):
        assert client.post(join, json=body).status_code == 400
    hidden = b'{"data": [{"\\u0070ath": "/etc/passwd"}]}'
    assert client.post(join, content=hidden).status_code == 400
    assert client.post(join, content=b"[" * 100_000).status_code == 400


def test_a_message_has_a_length_and_a_bound(client: TestClient):
    join = "/gradio_api/queue/join"
    assert client.post(join, content=b"12345").text == "5"
    assert client.post(join, content=bytes(MOST_BODY + 1)).status_code == 413
    assert client.post(join, content=iter([b"in", b"parts"])).status_code == 411
    assert client.post(join, headers={"content-length": "-1"}).status_code == 411
