"""prism export."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg


def export(
    checkpoint: Positional[Path],
    out: Positional[Path],
    to: Annotated[str, arg(metavar="onnx|openvino|torch|hub")] = "",
    steps: Annotated[str, arg(metavar="N|S1,S2,...")] = "",
    features: bool = False,
    titles: Annotated[str, arg(metavar="A,B,...")] = "",
    tag: str = "",
    push: Annotated[str, arg(metavar="OWNER/NAME")] = "",
) -> None:
    """Export to another engine, where PRISM still halts; or, without --to, write weights at half the size.

    Args:
        checkpoint: a .safetensors file written by a training run
        out: the file to write; for hub, the folder
        to: onnx (.onnx), openvino (.xml and .bin), torch (.pt2), or hub, a folder for timm and Hugging Face;
            without it, a safetensors file in float16
        steps: take exactly this many steps instead of halting: one number, or one per stage
        features: export the backbone's feature maps instead of logits
        titles: readable names of the classes, in order, if their names are codes
        tag: tag that tells these weights from others of the same model, as in timm
        push: also upload the folder to this repository of the Hugging Face Hub
    """
    from prism.data.preprocessing import Preprocessing
    from prism.model.metadata import VERSION, read_metadata
    from prism.model.weights import halved, read_weights
    from prism.training.checkpoint import export as write_weights

    if steps and not to:
        raise ValueError("--steps needs --to: weights alone do not say how many steps to take")
    if features and to in ("", "hub"):
        raise ValueError("--features is only for --to onnx, openvino or torch")
    if push and to != "hub":
        raise ValueError("--push is only for --to hub")
    metadata = read_metadata(checkpoint)
    if titles:
        classes, words = metadata.classes or [], titles.split(",")
        if len(classes) != len(words):
            raise ValueError(f"{checkpoint} has {len(classes)} classes, but {len(words)} titles were given")
        metadata = replace(metadata, titles=words)
    preprocessing = Preprocessing.from_metadata(metadata).to_metadata()  # whole, also of a file from before
    metadata = replace(metadata, tag=tag or metadata.tag, preprocessing=preprocessing, version=VERSION)
    if to:
        return _to_engine(checkpoint, out, to, steps, features, push, metadata)
    write_weights(halved(read_weights(checkpoint)), out, metadata.header())
    print(f"wrote {out}, {out.stat().st_size / 1e6:.1f} MB")
    return None


def _to_engine(checkpoint: Path, out: Path, to: str, steps: str, features: bool, push: str, metadata: Any) -> None:
    from prism.export.formats import FORMATS, check_place, write
    from prism.export.hub import push as upload
    from prism.export.hub import write_folder
    from prism.export.opening import open_exportable, with_steps

    if to not in (*FORMATS, "hub"):
        raise ValueError(f"--to must be one of {', '.join(FORMATS)}, hub, got {to!r}")
    if to != "hub":
        check_place(out, to)
    network = open_exportable(checkpoint, metadata.task, to)
    if steps:
        metadata = replace(metadata, network={**metadata.network, "fixed_steps": with_steps(network, steps)})
    if to == "hub":
        write_folder(network, out, metadata)
        print(f"wrote {out}, for timm.create_model('local-dir:{out}', pretrained=True)")
        if push:
            print(f"uploaded to {upload(out, push)}")
        return
    size = metadata.preprocessing["size"]
    difference, any_size = write(network, out, to, metadata, size, features)
    sizes = "images of any size" if any_size else f"images of {size} x {size}"
    print(f"wrote {out}, for {sizes}; differs from PyTorch by at most {difference:.1g}")
