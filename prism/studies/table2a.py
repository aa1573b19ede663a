"""Table 2(a): how much AP do detectors lose when a share of two objects per image is hidden?

The page is that of `prism occlusion`, from the same rows.
"""

from prism.studies import study as s
from prism.tasks.detection.evaluate import PAPER_SETTINGS, settings_of
from prism.tasks.detection.report import report as report

QUICK_SETTINGS = settings_of((0.0, 0.3, 0.5))


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    rows, others = inputs.occlusion("detection", QUICK_SETTINGS if inputs.quick else PAPER_SETTINGS, out, progress)
    return {"table2a": rows, **others}
