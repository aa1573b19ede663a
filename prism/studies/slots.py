"""Beyond the paper: which slot wins which part of an image in each stage and step, and does occlusion change it?"""

import numpy as np
import torch
from PIL import Image

from prism.analysis.drawing import Line, sheet
from prism.analysis.pairs import Pairs
from prism.analysis.slots import summary, winners
from prism.data.preprocessing import normalise
from prism.reporting.figures import pixels
from prism.studies import study as s

OCCLUSION = s.Setting("BlockMask", 112)


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """What each stage did with the first image, clean and occluded; and which slot won which position, step by step.

    The two images are written beside the tables, which name them.
    """
    found = inputs.prisms("only PRISM has slots")
    subject = found.prisms[0]
    network = inputs.ready(subject)
    pair = Pairs(found.images, OCCLUSION)[0]
    rows, maps = [], []
    for name, image in (("clean", pair.clean), (OCCLUSION.name, pair.occluded)):
        Image.fromarray(pixels(image)).save(out / f"{name}.png")
        with torch.inference_mode():
            seen = normalise(image[None].to(inputs.device), subject.mean, subject.std)
            trace = network.forward_traced(seen).trace
        which = {"image": f"{name}.png", "setting": name}
        for number, stage in enumerate(trace.stages, start=1):
            rows.append({"model": subject.name, "run": subject.run} | which | summary(number, stage))
            maps += [
                which
                | {"stage": number, "step": step, "weight": float(stage.weights[0, step - 1])}
                | {"winners": _as_text(winner)}
                for step, winner in enumerate(winners(stage), start=1)
            ]
    return {"slots": rows, "maps": maps, s.SKIPPED: s.skipped(found.all_but(subject), "only the first PRISM is shown")}


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows, maps = tables["slots"], tables["maps"]
    blocks = [
        [_line(s.where(maps, stage=stage, setting=setting), out) for stage in s.column(maps, "stage")]
        for setting in s.column(maps, "setting")
    ]
    caption = "Colour is the slot that won most of a position, brightness the image's."
    table = s.shown(rows, without=("note", "run", "image"))
    return s.told(_words(rows, maps), table, caption, sheet(*blocks), out / "slots.png")


def _line(rows: s.Rows, out: s.Path) -> Line:
    title = f"stage {rows[0]['stage']}, {rows[0]['setting']}"
    shown = np.asarray(Image.open(out / rows[0]["image"]))
    return Line(title, shown, [_from_text(row["winners"]) for row in rows], [row["weight"] for row in rows])


def _as_text(winner: np.ndarray) -> str:
    """Rows of positions apart by semicolons, positions by blanks."""
    return ";".join(" ".join(map(str, row)) for row in winner.tolist())


def _from_text(text: str) -> np.ndarray:
    return np.array([[int(slot) for slot in row.split()] for row in str(text).split(";")])


def _words(rows: s.Rows, maps: s.Rows) -> str:
    settings, agreement = s.column(rows, "setting"), []
    steps = [", ".join(str(row["steps"]) for row in s.where(rows, setting=setting)) for setting in settings]
    for stage in s.column(maps, "stage"):
        clean, occluded = (s.where(maps, stage=stage, setting=setting) for setting in settings)
        last = min(len(clean), len(occluded)) - 1
        same = _from_text(clean[last]["winners"]) == _from_text(occluded[last]["winners"])
        agreement.append(f"{same.mean():.0%} of the positions in stage {stage}")
    return (
        f"The stages take {steps[0]} steps on the clean image and {steps[1]} with {settings[1]}. After the last step "
        f"that both took, the same slot wins in both at {', '.join(agreement)}."
    )
