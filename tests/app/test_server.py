"""What visitors reach of the server, what it answers, and what it refuses, each in one sentence."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image
from starlette.testclient import TestClient

from prism.app import server
from prism.app.intake import read_url, to_url
from prism.app.networks import open_players
from prism.app.samples import samples
from prism.app.server import MOST_BODY, Playground, Queue, application
from tests.app.small import save_baseline, save_prism

RED = to_url(Image.new("RGB", (40, 40), "red"))


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Playground:
    place = tmp_path_factory.mktemp("weights")
    players = open_players(save_prism(place / "a.safetensors"), save_baseline(place / "b.safetensors"))
    return Playground("small", players, samples(players, None), None)


@pytest.fixture(scope="module")
def client(playground: Playground) -> TestClient:
    return TestClient(application([playground]))


@pytest.mark.parametrize("path", ["/", "/page.css", "/page.js"])
def test_the_page_is_reached_and_told_to_stay_at_home(client: TestClient, path: str):
    answer = client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'self';" in policy


@pytest.mark.parametrize("path", ["/server.py", "/../server.py", "/%2e%2e/server.py", "/results.html", "/etc/passwd"])
def test_nothing_else_is_there(client: TestClient, path: str):
    assert client.get(path).status_code == 404
    assert client.get("/answer").status_code == 405


def test_an_answer_is_about_the_image_that_was_sent(client: TestClient):
    found = client.post("/answer", json={"set": "small", "image": RED, "truth": "<b>"}).json()["results"]
    whole = found.split("--whole:url(")[1].split(")")[0]
    assert read_url(whole).getcolors() == [(32 * 32, (255, 0, 0))]
    assert "The right answer is &lt;b&gt;" in found
    hidden = client.post("/answer", json={"set": "small", "image": RED, "kind": "OnlyOne", "strength": 112, "seed": 3})
    assert "75% of the image is hidden" in hidden.json()["results"]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"image": RED}, "the sets are small"),
        ({"set": "small"}, "no image"),
        ({"set": "small", "image": 5}, "no image"),
        ({"set": "small", "image": "/etc/passwd"}, "no image"),
        ({"set": "small", "image": RED, "mask": "data:image/png;base64,AAAA"}, "not a readable image"),
        ({"set": "small", "image": RED, "kind": "PatchMask", "strength": 7, "seed": 0}, "between 0 and 1"),
        ({"set": "small", "image": RED, "kind": "Banana", "strength": 0.5, "seed": 0}, "unknown mask"),
        ({"set": "small", "image": RED, "kind": "M", "strength": 50, "seed": 0}, "only for detection"),
        ({"set": "small", "image": RED, "kind": "PatchMask", "strength": "a", "seed": 0}, "a strength and a seed"),
        ({"set": "small", "image": RED, "kind": "PatchMask", "strength": 0.5, "seed": -1}, "seed"),
        ({"set": "small", "image": RED, "kind": "PatchMask", "strength": 0.5, "seed": 10**30}, "seed"),
        ([], "not an object"),
    ],
)
def test_a_message_that_no_browser_would_send_is_answered_by_a_sentence(client: TestClient, message: object, said: str):
    answer = client.post("/answer", json=message)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b'{"seed": ' + b"9" * 10_000 + b"}", 400),
        (b'{"set": "small", "kind": "OnlyOne", "strength": NaN, "seed": 0, "image": "%b"}' % RED.encode(), 400),
        (b"x" * (MOST_BODY + 1), 413),
    ],
)
def test_bytes_that_are_no_message_are_refused(client: TestClient, body: bytes, status: int):
    assert client.post("/answer", content=body).status_code == status


def test_a_message_that_does_not_arrive_is_not_waited_for(playground: Playground, monkeypatch):
    monkeypatch.setattr(server, "PATIENCE", 0.05)

    async def never() -> dict:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    sent = []

    async def send(message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/answer", "headers": [], "query_string": b""}
    asyncio.run(application([playground])(scope, never, send))
    assert sent[0]["status"] == 408


def test_more_visitors_than_may_wait_are_told_so_and_the_others_are_answered(playground: Playground, monkeypatch):
    """One is answered and one waits while four more come."""
    go, entered = threading.Event(), threading.Event()

    def slow(*_: object) -> dict[str, str]:
        entered.set()
        go.wait(30)
        return {"results": ""}

    monkeypatch.setattr(server, "answer", slow)
    with TestClient(application([playground], Queue(1, 1))) as client, ThreadPoolExecutor(6) as visitors:
        replies = [visitors.submit(client.post, "/answer", json={}) for _ in range(6)]
        entered.wait(30)
        until = time.monotonic() + 30
        while sum(reply.done() for reply in replies) < 4:
            assert time.monotonic() < until
            time.sleep(0.01)
        go.set()
        statuses = [reply.result().status_code for reply in replies]
        assert sorted(statuses) == [200, 200, 503, 503, 503, 503]
        busy = next(reply.result() for reply in replies if reply.result().status_code == 503)
        assert "Many visitors are waiting" in busy.json()["error"]
        assert client.post("/answer", json={}).status_code == 200, "places are given back"
