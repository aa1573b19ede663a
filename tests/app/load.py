"""The page under load: eight visitors for two minutes, and what they must not notice.

    python -m tests.app.load

Visitors speak the page's protocol: each sends images of a colour of its own with random paintings, now and then a
file that is none, and now and then hangs up in the middle of a message. One more sends a byte per second all the
time. The figures go to results/reliability/page.csv.
"""

import argparse
import base64
import http.client
import json
import os
import random
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil
from PIL import Image, ImageDraw

from prism.app.intake import EASEL, read_url, to_url
from prism.reporting.tables import write_csv
from tests.app.served import Server, served

WARM_UP = 30.0  # seconds before memory is expected to be flat


@dataclass
class Tally:
    seconds: list[float] = field(default_factory=list)  # of each answer
    bad: int = 0  # files that are none: each was answered by a sentence
    dropped: int = 0
    busy: int = 0
    wrong: list[str] = field(default_factory=list)  # whatever should not have been


def visitor(address: str, number: int, until: float, tally: Tally) -> None:
    chance = random.Random(number)
    colour = tuple(chance.randrange(256) for _ in range(3))
    image = to_url(Image.new("RGB", (EASEL, EASEL), colour))
    while time.monotonic() < until:
        kind = chance.random()
        if kind < 0.05:
            _hang_up(address, image)
            tally.dropped += 1
        elif kind < 0.1:
            junk = base64.b64encode(chance.randbytes(chance.randrange(5000))).decode()
            status, told = _asked(address, {"set": "Scenes", "image": f"data:image/png;base64,{junk}"})
            tally.bad += 1
            if status != 400 or "error" not in told:
                tally.wrong.append(f"a bad file got {status}")
        else:
            _paint(address, image, colour, chance, tally)
        time.sleep(chance.expovariate(2))  # they also look


def _paint(address: str, image: str, colour: tuple[int, ...], chance: random.Random, tally: Tally) -> None:
    sheet = Image.new("L", (EASEL, EASEL), 255)
    points = [(chance.randrange(EASEL), chance.randrange(EASEL)) for _ in range(5)]
    ImageDraw.Draw(sheet).line(points, 0, chance.randrange(10, 80))
    started = time.perf_counter()
    chosen = chance.choice(["Scenes", "Photographs"])
    status, told = _asked(address, {"set": chosen, "image": image, "mask": to_url(sheet)})
    if status == 503:
        tally.busy += 1
        return
    if status != 200:
        tally.wrong.append(f"an answer came with {status}: {told}")
        return
    tally.seconds.append(time.perf_counter() - started)
    whole = read_url(told["results"].split("--whole:url(")[1].split(")")[0])
    if any(seen != colour for _, seen in whole.getcolors() or ((0, None),)):
        tally.wrong.append("another visitor's image")


def _asked(address: str, message: dict[str, str]) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
    try:
        connection.request("POST", "/answer", json.dumps(message), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def _hang_up(address: str, image: str) -> None:
    place = urlsplit(address)
    with socket.create_connection((place.hostname, place.port)) as line:
        line.sendall(f"POST /answer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(image)}\r\n\r\n{image[:500]}".encode())


def _slow(address: str, until: float) -> None:
    """Sends a byte per second; the server ends it after its patience, and it comes back."""
    place = urlsplit(address)
    while time.monotonic() < until:
        with socket.create_connection((place.hostname, place.port)) as line:
            line.sendall(b"POST /answer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
            try:
                while time.monotonic() < until:
                    line.sendall(b"x")
                    time.sleep(1)
            except OSError:
                pass


def measure(server: Server, visitors: int, seconds: float) -> dict[str, float]:
    started = time.monotonic()
    until = started + seconds
    tallies = [Tally() for _ in range(visitors)]
    threads = [
        threading.Thread(target=visitor, args=(server.address, number, until, tally))
        for number, tally in enumerate(tallies)
    ]
    threads.append(threading.Thread(target=_slow, args=(server.address, until)))
    for thread in threads:
        thread.start()
    process, memory = psutil.Process(server.process), []  # (second, MB)
    before = sum(process.cpu_times()[:2])
    while time.monotonic() < until:
        memory.append((time.monotonic() - started, process.memory_info().rss / 1e6))
        time.sleep(1)
    for thread in threads:
        thread.join()
    spent = sum(process.cpu_times()[:2]) - before
    assert _asked(server.address, {})[0] == 400, "the server is alive"
    wrong = [each for tally in tallies for each in tally.wrong]
    assert not wrong, wrong[:5]
    times = np.array([each for tally in tallies for each in tally.seconds])
    warm = [megabytes for second, megabytes in memory if second > min(WARM_UP, seconds / 4)]
    third = max(1, len(warm) // 3)
    return {
        "visitors": visitors,
        "seconds": seconds,
        "answers": len(times),
        "median s": round(float(np.median(times)), 3),
        "99th percentile s": round(float(np.quantile(times, 0.99)), 3),
        "CPU s per answer": round(spent / max(1, len(times)), 3),
        "load average of the machine": round(os.getloadavg()[0], 1),
        "told to wait": sum(tally.busy for tally in tallies),
        "bad files refused": sum(tally.bad for tally in tallies),
        "connections dropped": sum(tally.dropped for tally in tallies),
        "other visitors' images": 0,
        "MB after warm-up": round(float(np.mean(warm[:third]))),
        "MB at the end": round(float(np.mean(warm[-third:]))),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--visitors", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/page.csv"))
    chosen = parser.parse_args()
    with served("prism.cli", "app", "--port", "{port}") as server:
        row = measure(server, chosen.visitors, chosen.seconds)
    write_csv([row], chosen.out)
    print("\n".join(f"{name}: {value}" for name, value in row.items()))
