"""Table 2(a): how much AP do detectors lose when a share of two objects per image is hidden?"""

from prism.metrics.complexity import parameters
from prism.occlusion.detection import (
    LETTERS,
    MASK_RCNN,
    NOTE,
    PUBLISHED,
    RETINANET,
    SHARES,
    DetectionBenchmark,
    curves,
    of_head,
    paper_table,
    share_of,
)
from prism.studies import study as s

FILL = "mean"
QUICK_SHARES = (0.0, 0.3, 0.5)
PAPER = ("clean", "M30", "M50")  # its settings
WORTH_COMPARING = 1.0  # AP: shares of less say nothing


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    """COCO's numbers of every detector, setting and subset of the objects; and what was hidden."""
    subjects, images = inputs.detectors()
    shares = QUICK_SHARES if inputs.quick else SHARES
    rows, blocks = DetectionBenchmark(images, shares, **inputs.dense_benchmark(out)).run(subjects, progress)
    sizes = {(subject.backbone, subject.head): parameters(subject.network) for subject in subjects}
    return {
        "table2a": [{**row, "parameters": sizes[row["backbone"], row["head"]]} for row in rows],
        "blocks": [{**row, "left out": len(getattr(images, "broken", ()))} for row in blocks],
    }


def report(tables: s.Tables, out: s.Path) -> list[s.Section]:
    rows = tables["table2a"]
    sizes = {(row["backbone"], row["head"]): row["parameters"] for row in rows}
    lines = paper_table(rows, sizes, FILL)
    heads = [head for head in LETTERS if head in s.column(rows, "head")]
    words = f"{_words(rows, tables)} {heads[0]}:"
    caption = "AP against the hidden share of two objects per image. Grey: the paper's values on COCO."
    return [
        *(s.Section("", f"{head}." if place else words, of_head(lines, head)) for place, head in enumerate(heads)),
        s.Section("", caption, s.save(figure(rows), out / "table2a.png")),
    ]


def figure(rows: s.Rows) -> s.Figure:
    """The benchmark's curves, and the paper's PRISM."""
    drawn = curves(rows, FILL)
    for head, colour in (("RetinaNet", "#444444"), ("Mask R-CNN", "#999999")):
        if head in s.column(rows, "head"):
            points = [(share_of(setting), ap) for setting, ap in published(head).items()]
            label = f"PRISM, {head}, box (paper, COCO)"
            drawn.axes[0].plot(*zip(*sorted(points), strict=True), color=colour, marker="o", label=label, **s.PAPER)
    s.from_zero(drawn.axes[0])
    for legend in (axis.get_legend() for axis in drawn.axes):
        if legend:
            legend.remove()
    drawn.set_size_inches(9.5, 4.4)
    s.legend_below(drawn, 3, size=8)
    return drawn


def published(head: str) -> dict[str, float]:
    """The box AP of the paper's PRISM, by setting."""
    retinanet, mask_rcnn = PUBLISHED["PRISM"]
    names, values = (RETINANET, retinanet) if head == "RetinaNet" else (MASK_RCNN, mask_rcnn)
    listed: dict[str, float] = dict(zip(names, values, strict=True))
    return {setting: listed[f"{'C' if setting == 'clean' else setting}{LETTERS[head]['box AP']}"] for setting in PAPER}


def _words(rows: s.Rows, tables: s.Tables) -> str:
    counts = tables["blocks"][0]
    said = [
        f"Of {counts['pictures']} images, {counts['two objects']} have at least two objects that can be partly hidden, "
        f"{counts['one object']} have one and {counts['no object']} none."
    ]
    if counts["left out"]:
        said.append(f"{counts['left out']} broken annotations were left out.")
    found = s.means(s.where(rows, subset="all"), ["backbone", "head", "setting"], "box AP")
    hardest, kept = max(s.column(rows, "setting"), key=share_of), {}
    for backbone, head in dict.fromkeys((row["backbone"], row["head"]) for row in rows):
        clean, hidden = (100 * found.get((backbone, head, setting), 0.0) for setting in ("clean", hardest))
        if clean >= WORTH_COMPARING:
            kept[backbone, head] = hidden / clean
        said.append(f"{head} on {backbone} has {clean:.1f} box AP clean and {hidden:.1f} with {hardest}.")
    if len(kept) > 1:
        (backbone, head), share = max(kept.items(), key=lambda entry: entry[1])
        said.append(f"{head} on {backbone} keeps the largest share of its AP, {share:.0%}.")
    return " ".join([*said, NOTE])
