"""prism slots."""

from pathlib import Path

from tyro.conf import Positional

from prism.model.checks import Side

OCCLUSION = "BlockMask112"


def slots(
    image: Positional[Path | None] = None,
    model: str = "",
    checkpoint: Path | None = None,
    size: Side | None = None,
    occluded: bool = False,
    seed: int = 0,
    out: Path = Path("runs/slots"),
) -> None:
    """Draw which slot wins which part of an image, stage by stage and step by step.

    Args:
        image: an image file; a generated scene by default
        model: a PRISM variant; by default the checkpoint's, or prism_nano
        checkpoint: its weights (safetensors); without it, untrained
        size: side of the image in pixels; by default what the checkpoint was trained at, or 224
        occluded: also draw the same image with a block hidden
        seed: seed of the scene, of untrained weights and of the block
        out: folder for slots.png and slots.csv
    """
    import torch

    from prism.analysis.drawing import lines, sheet
    from prism.analysis.pairs import hide
    from prism.analysis.slots import summary
    from prism.data.images import read_image
    from prism.data.preprocessing import Preprocessing
    from prism.data.scenes import render_scene
    from prism.model.backbone import Prism
    from prism.model.creation import Checkpoint, find_checkpoint, open_model
    from prism.model.metadata import read_metadata
    from prism.occlusion.masks import mask_generator
    from prism.occlusion.settings import Setting
    from prism.reporting.figures import pixels, save
    from prism.reporting.tables import show, write

    torch.manual_seed(seed)
    model = model or (read_metadata(checkpoint).model if checkpoint else "") or "prism_nano"
    found = find_checkpoint(model, checkpoint) if checkpoint else Checkpoint(model)
    network = open_model(found)
    if not isinstance(network, Prism):
        raise ValueError(f"{found.name} has no slots: name a PRISM variant")
    preprocessing = Preprocessing.from_metadata(found.metadata).at(size)
    scene = torch.from_numpy(render_scene(preprocessing.size, seed)).permute(2, 0, 1) / 255
    images = {"clean": preprocessing.unit(read_image(image)) if image else scene}
    if occluded:
        setting, colour = Setting.parse(OCCLUSION), torch.tensor(preprocessing.mean)
        images[OCCLUSION] = hide(images["clean"], setting, mask_generator(0, seed), colour).occluded
    rows, blocks = [], []
    for name, shown in images.items():
        with torch.inference_mode():
            stages = network.forward_traced(preprocessing.normalised(shown)[None]).trace.stages
        rows += [{"setting": name} | summary(number, stage) for number, stage in enumerate(stages, start=1)]
        blocks.append(lines(pixels(shown), stages))
    write(rows, out / "slots", "Steps taken in each stage, weights of their states, and slots in use.")
    save(sheet(*blocks), out / "slots.png", dpi=110)
    show(rows, f"{found.name}{'' if checkpoint else ', untrained'}: steps and slots")
    print(f"wrote {out / 'slots.png'} and {out / 'slots.csv'}")
