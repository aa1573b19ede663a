"""prism app."""

from pathlib import Path
from typing import Annotated

from prism.model.checks import Range


def app(
    checkpoint: Path | None = None,
    baseline: Path | None = None,
    examples: Path | None = None,
    host: str = "127.0.0.1",
    port: Annotated[int, Range(1, 65_535)] = 7860,
) -> None:
    """Open the playground: hide parts of an image in the browser and see how the network's answer changes.

    Args:
        checkpoint: weights of a PRISM classifier (safetensors); by default those shipped with the package
        baseline: weights of another model, trained on the same classes, to compare with
        examples: folder of sample images, also used to illustrate prototypes; every visitor can see them
        host: address to listen on; 0.0.0.0 opens the page to the network
        port: port to listen on
    """
    import torch

    from prism.app.server import open_playgrounds, serve

    torch.set_num_threads(1)  # several visitors are answered side by side
    serve(open_playgrounds(checkpoint, baseline, examples), host, port)
