"""prism info."""

from typing import Annotated

from tyro.conf import Positional, arg

from prism.model.checks import LARGEST
from prism.tasks.parsing import numbers, whole_numbers


def info(
    model: Positional[str], size: str = "224", steps: Annotated[str, arg(metavar="S1,S2,...")] = "2.5,3.2,3.7,2.5"
) -> None:
    """Parameters and GMACs of a model, by part; for PRISM also by steps.

    Args:
        model: a PRISM variant or any timm model
        size: side of the image, or HEIGHTxWIDTH
        steps: mean steps of the stages, for the last row
    """
    from prism.metrics import complexity
    from prism.model.backbone import Prism
    from prism.model.creation import check_size, create
    from prism.model.memory import Codebook
    from prism.reporting.tables import show

    network, pixels = create(model), _size(size)
    check_size(network, model, pixels)
    profile = mean_steps(steps, len(network.stages)) if isinstance(network, Prism) else []
    show(complexity.parts(network, pixels), f"{model} at {pixels[0]} x {pixels[1]}")
    if isinstance(network, Prism):
        buffers = sum(book.codes.numel() for book in network.modules() if isinstance(book, Codebook))
        show(complexity.by_steps(network, pixels, [profile]), "GMACs by steps in the stages")
        print(f"The codebooks hold another {buffers:,} values, updated by moving averages instead of the optimiser.")


def mean_steps(text: str, stages: int) -> list[float]:
    found = numbers(text, 1, 1000)
    if len(found) not in (1, stages):
        raise ValueError(f"steps need one number or {stages}, got {text!r}")
    return found if len(found) == stages else found * stages


def _size(text: str) -> tuple[int, int]:
    found = whole_numbers(text.replace("x", ","), most=LARGEST)
    if len(found) > 2:
        raise ValueError(f"expected a side or HEIGHTxWIDTH, got {text!r}")
    return found[0], found[-1]
