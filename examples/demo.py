"""`make demo`: the shipped weights under occlusion, slot maps, and a short training that is interrupted and resumed.

Each command is printed before it runs, and can be pasted into a shell after `source .venv/bin/activate`.
"""

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

from prism.reporting.pages import Section, write_report
from prism.reporting.tables import read_csv

OUT = Path("runs/demo")
WEIGHTS = [str(file) for file in sorted(Path("prism/weights").glob("*.scenes.safetensors"))]
OCCLUSION = f"prism occlusion {' '.join(WEIGHTS)} --data scenes --limit 300 --out {OUT}/occlusion"
SLOTS = f"prism slots --checkpoint {WEIGHTS[0]} --occluded --seed 3 --out {OUT}/slots"
TRAINING = f"prism train scenes --steps 30 --save-every 10 --limit 100 --out {OUT}/training"
NEXT = f"""
Done. Open {OUT}/report.html in a browser. What to try next:

  prism app                                   hide parts of an image yourself, in the browser
  prism predict photo.jpg                     classify a photo (ten classes)
  prism occlusion resnet18 --pretrained --data FOLDER --split val      how robust is another model?
  prism train scenes                          the full training, about a quarter of an hour
  make docs                                   build the documentation in build/docs
"""


def start(command: str) -> subprocess.Popen[bytes]:
    print(f"\n$ {command}", flush=True)
    return subprocess.Popen([sys.executable, "-m", "prism.cli", *shlex.split(command)[1:]])


def run(command: str) -> None:
    if status := start(command).wait():
        sys.exit(status)


def interrupt(command: str, sign: Path) -> None:
    """Start it, and press Ctrl-C once `sign` is there; a run that was finished before just ends."""
    running = start(command)
    while running.poll() is None and not sign.exists():
        time.sleep(0.2)
    if running.poll() is None:
        running.send_signal(signal.SIGINT)
        running.wait()
        print("Interrupted on purpose, after a checkpoint. The same command resumes from there:", flush=True)


def report() -> None:
    """One page of all three, from the files that they wrote."""
    accuracy = [row for row in read_csv(OUT / "occlusion" / "table.csv") if "(paper" not in row["model"]]
    summary = (OUT / "occlusion" / "report.md").read_text().split("\n\n")[1]
    sections = [
        Section("Accuracy", f"{summary}\n\nTop-1 on 300 generated scenes, per cent.", accuracy),
        Section(
            "What the models saw",
            "Three scenes, whole and with parts hidden. The question is the shape of the object with the white rim; "
            "✓ is a right answer, ✗ a wrong one.",
            OUT / "occlusion" / "examples.png",
        ),
        Section(
            "Accuracy as more is hidden",
            "Dashed: published values of larger models on ImageNet, for reference.",
            OUT / "occlusion" / "occlusion.png",
        ),
        Section(
            "Slots",
            "Which slot won which part of a scene, stage by stage and step by step: whole, and behind a block.",
            OUT / "slots" / "slots.png",
        ),
        Section(
            "Thirty steps of training",
            "Interrupted after ten steps, and resumed.",
            OUT / "training" / "curves.png",
        ),
        Section("Commands", "", [{"command": command} for command in (OCCLUSION, SLOTS, TRAINING)]),
    ]
    write_report(OUT, "PRISM: the demo", sections)


if __name__ == "__main__":
    began = time.perf_counter()
    run(OCCLUSION)
    run(SLOTS)
    interrupt(TRAINING, OUT / "training" / "checkpoints" / "step-00000010.pt")
    run(TRAINING)
    report()
    print(f"{NEXT}\n{time.perf_counter() - began:.0f} seconds.")
