"""The occlusion benchmark as a study: rows first, then the table, curves and page that are made from them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prism.metrics.complexity import parameters
from prism.occlusion import report
from prism.occlusion.benchmark import OcclusionBenchmark, Subject
from prism.reporting import tables
from prism.reporting.pages import Section, page
from prism.studies.accuracy import STEPS, add_costs

NOTE = (
    "Top-1 accuracy in per cent; with several runs or mask seeds, mean ± deviation over them. Rows marked as the "
    "paper's are its published values on ImageNet-1K, for reference: they were not measured here."
)


def run(
    benchmark: OcclusionBenchmark, subjects: Sequence[Subject], out: Path, command: str, progress: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Write occlusion.csv, tables, curves.png, examples.png and report.html into `out`; return the paper's table.

    All processes but the first have no more to do than to measure, and return nothing.
    """
    rows, predictions = benchmark.run(subjects, progress)
    if not benchmark.is_first:
        return []
    add_costs(rows, subjects, benchmark.pictures)
    tables.write(rows, out / "occlusion", f"`{command}`")
    headline = benchmark.fills[0]
    main = report.paper_table(rows, headline)
    for line in main:
        model = next((s.model for s in subjects if s.name == line["model"]), None)
        line["parameters"] = f"{parameters(model) / 1e6:.2f} M" if model else ""
    tables.write(main, out / "table", f"{NOTE}\n\n`{command}`")
    retention = report.retention_table(rows, headline)
    tables.write(retention, out / "retention", f"Occluded over clean accuracy, per cent.\n\n`{command}`")
    report.curves(rows, headline).savefig(out / "curves.png", dpi=130)
    report.examples(benchmark.pictures, benchmark.settings, benchmark.fills, benchmark.mean).savefig(
        out / "examples.png", dpi=110
    )
    sections: list[tuple[str, str, tables.Rows | Path]] = [
        ("Accuracy", f"{NOTE} Hidden pixels: {headline}.", main),
        ("Curves", "Bands are deviations over training runs and mask seeds.", out / "curves.png"),
        ("What the models saw", "Two pictures of the data under every setting.", out / "examples.png"),
        (
            "What is kept",
            "Occluded over clean accuracy, per cent; and mean accuracy over a kind's settings.",
            retention,
        ),
    ]
    if len({s.name for s in subjects}) > 1:
        significance = report.significance_table(predictions, headline)
        tables.write(significance, out / "significance", f"McNemar's exact test on the same pixels.\n\n`{command}`")
        sections.append(("Differences", "In points; p by McNemar's exact test on the same pixels.", significance))
    steps = [
        {key: row[key] for key in ("model", "run", "setting", *STEPS, "GMAC")}
        for row in rows
        if row["steps 1"] is not None and row["fill"] in ("", headline) and row["mask seed"] in ("", benchmark.seeds[0])
    ]
    if steps:
        sections.append(("Steps", "Mean steps that PRISM took in each stage, and what they cost.", steps))
    if len(benchmark.fills) > 1:
        fills = report.fills_table(rows)
        sections.append(("Fills", "No fill is neutral: the same masks, other pixels in them.", fills))
    sections.append(("All rows", f"Made by: {command}", rows))
    (out / "report.html").write_text(page("Occlusion benchmark", [Section(*part) for part in sections]))
    return main
