"""From rows of AP under occlusion to a page: the paper's table, curves, which objects were found."""

from pathlib import Path

from matplotlib.figure import Figure

from prism.occlusion.settings import MASKS, Setting, fills_of, kept, of_fill
from prism.reporting.figures import PAPER, curve, from_zero, legend_below, panels, save
from prism.reporting.pages import Section, present
from prism.reporting.tables import Row, Rows, Tables, column, grouped, means, with_deviation

# Table 2(a) of the paper, on COCO: parameters of RetinaNet in millions and its AP; those of Mask R-CNN, box and mask AP
RETINANET = ("M", "C", "M30", "M50")
MASK_RCNN = ("M", "C b", "C m", "M30 b", "M30 m", "M50 b", "M50 m")
COLUMNS = {"RetinaNet": RETINANET, "Mask R-CNN": MASK_RCNN}
LETTERS = {"RetinaNet": {"box AP": ""}, "Mask R-CNN": {"box AP": " b", "mask AP": " m"}}
PUBLISHED: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "PVTv2-B1": ((23.8, 41.2, 32.8, 27.6), (33.7, 41.8, 38.8, 34.1, 31.1, 28.7, 25.9)),
    "PaCa-Ti": ((), (32.0, 43.3, 39.6, 37.5, 34.7, 31.8, 28.7)),
    "DaViT-T": ((38.5, 44.0, 36.9, 31.5), (47.8, 45.0, 41.1, 38.6, 35.3, 33.0, 29.8)),
    "PRISM": ((20.5, 43.6, 38.8, 34.2), (31.4, 44.5, 40.8, 40.6, 36.9, 37.2, 33.7)),
}
NOTE = (
    "AP in per cent, averaged over IoU 0.50 to 0.95: C clean, M30 and M50 with 30 and 50 % of two objects per image "
    "hidden, b of boxes, m of masks; M is millions of parameters. With several training runs or mask seeds, mean ± "
    "deviation over them. Rows marked as the paper's are its published values on COCO, for reference: they were not "
    "measured here."
)
WORTH_COMPARING = 1.0  # AP: a share of less says nothing


def report(tables: Tables, out: Path) -> list[Section]:
    """Of the first table, of scores; and of `blocks` and `subsets` where they are there."""
    name, rows = next(iter(tables.items()))
    filling = fills_of(rows)[0]
    lines = paper_table(rows, {(row["backbone"], row["head"]): row["parameters"] for row in rows}, filling)
    heads = [head for head in LETTERS if head in column(rows, "head")]
    summary = f"{words(rows, tables.get('blocks', []))} {NOTE} Truth: {rows[0]['truth']}; hidden pixels: {filling}."
    drawn = save(figure(rows, filling), out / f"{name}.png")
    return present(
        *(Section(head, "" if place else summary, of_head(lines, head)) for place, head in enumerate(heads)),
        Section(
            "Curves",
            "AP against the share hidden; bands are deviations over runs and mask seeds. Grey: the paper's, on COCO.",
            drawn,
        ),
        Section(
            "Which objects",
            "AP in per cent of all objects, of the masked ones (clean: those that the first mask seed is about to "
            "hide), of those brushed by a block over another one, of the untouched, and of those flagged as occluded "
            "in the data; and the share of each found with mask IoU 0.75.",
            tables.get("subsets", []),
        ),
        Section("What the detectors saw", "Images in every setting.", out / "examples.png"),
        Section(
            "What was hidden",
            "Images by how many objects a block could be laid over; shares of these objects' pixels.",
            tables.get("blocks", []),
        ),
        Section("All rows", "COCO's numbers from 0 to 1.", rows),
    )


def paper_table(rows: Rows, sizes: dict[tuple[str, str], int], filling: str) -> list[Row]:
    """One row per backbone in the layout of the paper's Table 2(a), then the paper's own rows."""
    scores = {number: _scores(rows, filling, "all", number) for number in ("box AP", "mask AP")}
    ours = []
    for name in column(rows, "backbone"):
        line = {"model": name} | {f"{head} {c}": "" for head, columns in COLUMNS.items() for c in columns}
        line |= {f"{head} M": f"{size / 1e6:.1f}" for (backbone, head), size in sizes.items() if backbone == name}
        for number, found in scores.items():
            for (backbone, head, setting), values in found.items():
                place = f"{head} {'C' if setting == 'clean' else setting}{LETTERS[head].get(number)}"
                if backbone == name and place in line:
                    line[place] = with_deviation(values)
        ours.append(line)
    theirs = [
        {"model": f"{name} (paper, COCO)"}
        | {
            f"{head} {c}": f"{values[place]:.1f}" if values else ""
            for (head, columns), values in zip(COLUMNS.items(), both, strict=True)
            for place, c in enumerate(columns)
        }
        for name, both in PUBLISHED.items()
    ]
    return [*ours, *theirs]


def of_head(lines: Rows, head: str) -> list[Row]:
    """The columns of one head, and the models that have it."""
    cut = [
        {"model": line["model"]} | {name.removeprefix(f"{head} "): cell for name, cell in line.items() if head in name}
        for line in lines
    ]
    return [line for line in cut if line["M"]]


def subset_table(rows: Rows, filling: str) -> list[Row]:
    """A row for each detector, subset of the objects and score, a column for each setting."""
    lines = []
    for backbone, head in dict.fromkeys((row["backbone"], row["head"]) for row in rows):
        for subset in column(rows, "subset"):
            for number in ("box AP", "mask AP", "mask recall75"):
                scores = _scores(rows, filling, subset, number)
                cells = {s: with_deviation(scores.get((backbone, head, s), [])) for s in column(rows, "setting")}
                if any(cells.values()):
                    lines.append({"detector": f"{backbone}, {head}", "objects": subset, "score": number, **cells})
    return lines


def figure(rows: Rows, filling: str) -> Figure:
    """AP against the share that is hidden: of all objects, and of the masked ones alone; masks are dashed."""
    drawn, axes = panels(2, 4.75, 4.4)
    detectors = list(dict.fromkeys((row["backbone"], row["head"]) for row in rows))
    for axis, subset in zip(axes, ("all", "masked"), strict=True):
        for number, (backbone, head) in enumerate(detectors):
            for score, line in (("box AP", "-"), ("mask AP", "--")):
                found = _scores(rows, filling, subset, score).items()
                points = {Setting.parse(s).hidden_share: own for (*of, s), own in found if of == [backbone, head]}
                label = f"{backbone}, {head}, {score.split()[0]}" if points else None
                curve(axis, points, number, label, linestyle=line)
        axis.set(title=f"{subset} objects", xlabel=MASKS["M"].label)
    for head, colour in (("RetinaNet", "#444444"), ("Mask R-CNN", "#999999")):
        if head in column(rows, "head"):
            points = [
                (Setting.parse(setting).hidden_share, ap) for setting, ap in published("PRISM", head, "box AP").items()
            ]
            label = f"PRISM, {head}, box (paper, COCO)"
            axes[0].plot(*zip(*sorted(points), strict=True), color=colour, marker="o", label=label, **PAPER)
    from_zero(axes[0])
    axes[0].set(ylabel=f"AP, % ({filling} fill)")
    legend_below(drawn, 3, size=8)
    return drawn


def published(model: str, head: str, number: str) -> dict[str, float]:
    """The paper's AP by setting: `number` is box AP or mask AP."""
    letter = LETTERS[head].get(number)
    values = dict(zip(COLUMNS[head], PUBLISHED[model][head == "Mask R-CNN"], strict=False))
    if letter is None:
        return {}
    settings = {"clean": "C", "M30": "M30", "M50": "M50"}
    return {name: values[f"{s}{letter}"] for name, s in settings.items() if f"{s}{letter}" in values}


def words(rows: Rows, blocks: Rows) -> str:
    found = []
    if blocks:
        hidden = blocks[0]
        found.append(
            f"Of {hidden['images']} images, {hidden['two objects']} have two objects or more that can lose a part, "
            f"{hidden['one object']} have one and {hidden['no object']} none."
        )
        if hidden["left out"]:
            found.append(f"{hidden['left out']} broken annotations were left out.")
    scores = means([row for row in rows if row["subset"] == "all"], ["backbone", "head", "setting"], "box AP")
    hardest, pairs = max(column(rows, "setting"), key=lambda name: Setting.parse(name).hidden_share), {}
    for backbone, head in dict.fromkeys((row["backbone"], row["head"]) for row in rows):
        clean, occluded = (100 * scores.get((backbone, head, setting), 0.0) for setting in ("clean", hardest))
        if clean >= WORTH_COMPARING:
            pairs[f"{head} on {backbone}"] = clean, occluded
        found.append(f"{head} on {backbone} has {clean:.1f} box AP, and {occluded:.1f} with {hardest}.")
    return f"{kept(pairs, 'box AP', Setting.parse(hardest))}\n\n{' '.join(found)}"


def _scores(rows: Rows, filling: str, subset: str, score: str) -> dict[tuple[str, ...], list[float]]:
    """In per cent, by backbone, head and setting."""
    own = [row for row in of_fill(rows, filling) if row["subset"] == subset]
    return grouped(own, ["backbone", "head", "setting"], score, 100)
