"""prism speed."""

import os
import platform
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from tyro.conf import Positional, arg

from prism.commands.info import mean_steps
from prism.model.checks import LARGEST, Range
from prism.tasks.parsing import whole_numbers


def speed(
    models: Positional[list[str]],
    size: str = "224",
    batch: str = "1,16",
    dtype: str = "float32",
    engine: str = "eager",
    compile: bool = False,
    threads: Annotated[int, Range(1, 1024)] | None = None,
    repeats: Annotated[int, Range(2, 1000)] = 10,
    steps: Annotated[str, arg(metavar="S1,S2,...")] = "",
    train: bool = False,
    out: Path | None = None,
) -> None:
    """Images per second of several models, interleaved; ratios are to the first.

    Args:
        models: PRISM variants and timm models; NAME@2.5 or NAME@S1,S2,S3,S4 forces PRISM's mean steps for one
        size: sides of the images, comma-separated
        batch: batch sizes, comma-separated
        dtype: float32 or bfloat16 (autocast)
        engine: eager, compile, onnxruntime, openvino or program, comma-separated: all in one interleaved run
        compile: the same as --engine compile
        threads: CPU threads; all by default
        repeats: how many times each model is timed
        steps: force these mean steps on every PRISM model without steps of its own
        train: time training steps instead (forward, backward, optimiser and codebooks), in eager PyTorch
        out: folder for speed.csv and speed.md
    """
    import torch

    from prism.export.planned import runner
    from prism.metrics.speed import check_steps, make_cases, measure
    from prism.model.backbone import Prism
    from prism.model.creation import check_size, create
    from prism.reporting import provenance, tables
    from prism.training.cost import BACKWARD
    from prism.training.data_speed import trainer

    if dtype not in ("float32", "bfloat16"):
        raise ValueError(f"dtype must be float32 or bfloat16, got {dtype!r}")
    if not models:
        raise ValueError("name at least one model")
    engines = ["compile"] if compile else engine.split(",")
    if dtype != "float32" and (other := {*engines} - {"eager", "compile"}):
        raise ValueError(f"{dtype} is only timed in PyTorch, not in {', '.join(sorted(other))}")
    if train and engines != ["eager"]:
        raise ValueError(f"--train is only timed in eager PyTorch, not in {', '.join(engines)}")
    torch.set_num_threads(threads := threads or os.cpu_count() or 1)
    networks, forced = {}, {}
    for spec in models:
        name, _, own = spec.partition("@")
        networks[spec] = network = create(name)
        if (own or steps) and isinstance(network, Prism):
            forced[spec] = mean_steps(own or steps, len(network.stages))
            check_steps(network, forced[spec])
        elif own:
            raise ValueError(f"{name} has no steps to force: {spec!r}")
    kind, sizes, batches = getattr(torch, dtype), whole_numbers(size, most=LARGEST), whole_numbers(batch, most=LARGEST)
    for spec, network in networks.items():
        for side in sizes:
            check_size(network, spec, (side, side))
    with tables.progress() as said, TemporaryDirectory() as folder:
        starts = (
            {"training": trainer}
            if train
            else {name: runner(name, sizes[0], threads, Path(folder)) for name in engines}
        )
        cases = []
        for name, start in starts.items():
            said(f"preparing {name}")
            cases += make_cases(networks, forced, sizes, batches, name, start, kind)
        if train:
            cases = [case._replace(macs=(1 + BACKWARD) * case.macs) for case in cases]
        rows = measure(cases, repeats, kind, said)
    used = f"{torch.get_num_threads()} thread{'s' * (torch.get_num_threads() > 1)}"
    tables.show(rows, f"{used}, {repeats} repeats, torch {torch.__version__}")
    if out:
        note = (
            f"`{provenance.command()}`, {repeats} interleaved repeats, {used}, "
            f"torch {torch.__version__}, {_processor()}. Images per second are medians; the spread is the "
            "interquartile range over the median; ratios are medians over repeats."
        )
        tables.write(rows, out / "speed", note)
        print(f"wrote {out / 'speed.csv'} and {out / 'speed.md'}")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
