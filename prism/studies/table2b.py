"""Table 2(b): how much mIoU do segmenters lose when patches are hidden, and how well do they label hidden pixels?

The page is that of `prism occlusion`, from the same rows.
"""

from prism.studies import study as s
from prism.tasks.segmentation.evaluate import CURVE, PAPER_SETTING
from prism.tasks.segmentation.report import report as report

QUICK_SETTINGS = (s.CLEAN, PAPER_SETTING, s.Setting("PatchMask", 0.6))


def measure(inputs: s.Inputs, out: s.Path, progress: s.Progress) -> s.Tables:
    rows, others = inputs.occlusion("segmentation", QUICK_SETTINGS if inputs.quick else CURVE, out, progress)
    return {"table2b": rows, **others}
