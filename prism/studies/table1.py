"""Table 1: how accurate are classifiers when patches, a block, or all but a block are hidden?

The page is that of `prism occlusion`, from the same rows.
"""

from prism.studies import study as s
from prism.tasks.classification.report import report as report


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    rows, others = inputs.occlusion("classification", s.PAPER_SETTINGS, out, progress)
    return {"table1": rows, **others}
