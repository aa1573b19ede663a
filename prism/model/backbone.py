"""Prism: four stages and a head (paper, section 3)."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from timm.layers import ClassifierHead
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from prism.model.compilation import batch_will_change, exporting, room_for_graphs, run_in_python
from prism.model.evidence import weighted
from prism.model.halting import HaltingUnit, expected_start
from prism.model.memory import DERIVED, MemoryMode, SlotMemory, checked_mode, update_codebooks
from prism.model.refinement import RefinementStep, Watch
from prism.model.stage import Features, PatchTokeniser, Stage, StageTrace, Tokeniser

SMALLEST_SIDE = 32  # one token in the last stage
PIXELS_AT_ONCE = 16 * 224 * 224
LAMBDA_PONDER, LAMBDA_VQ = 0.005, 0.01


class Trace(NamedTuple):
    """What the network did with a batch: one entry per stage."""

    stages: list[StageTrace]

    @property
    def ponder_loss(self) -> Tensor:
        """Sum over stages of L_ponder, averaged over images."""
        return torch.stack([stage.ponder.mean() for stage in self.stages]).sum()

    @property
    def vq_loss(self) -> Tensor:
        """Sum over stages and steps of L_vq, averaged over images."""
        return torch.stack([stage.vq.mean() for stage in self.stages]).sum()

    def loss(self, ponder: float = LAMBDA_PONDER, vq: float = LAMBDA_VQ) -> Tensor:
        """What PRISM adds to the loss of its task."""
        return ponder * self.ponder_loss + vq * self.vq_loss


class Pyramid(NamedTuple):
    features: list[Tensor]  # (B, D_s, H_s, W_s) at strides 4, 8, 16, 32
    trace: Trace | None
    evidence: list[Tensor] | None = None  # (B, 1, H_s, W_s), how much of each position was seen


class Traced(NamedTuple):
    logits: Tensor
    trace: Trace


class Prism(nn.Module):
    """A pyramid whose stages repeat one block until a halting unit says enough.

    With `evidence`, patches lie side by side, and what shows no contrast counts as not seen: see
    `prism.model.evidence`. `ffn_kernel` is the side of the depthwise convolution in the token FFN; with 1, tokens mix
    through slots alone, which is where the memory matters (docs/paper_map.md). `slot_ratio` is the width of the slots'
    FFN and `code_width` that of a code, in widths of the stage: slots are few, so what is spent on them costs little.
    `halting_start` is the probability of halting that training starts from; by default about T_max / 2 steps are taken
    at first.

    `preset="paper"` keeps the literal equations: no evidence, overlapping patches, no LayerScale, and a memory without
    norms that is trained straight-through with nothing detached.
    """

    def __init__(
        self,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        img_size: int | tuple[int, int] | None = None,
        widths: tuple[int, ...] = (64, 128, 320, 512),
        slots: tuple[int, ...] = (16, 16, 12, 8),
        codes: int = 512,
        code_decay: float = 0.99,
        beta: float = 0.25,
        ffn_ratio: float = 4.0,
        ffn_kernel: int = 3,
        slot_ratio: float = 5.0,
        code_width: float = 1.0,
        max_steps: int = 5,
        halting_start: float | None = None,
        fixed_steps: int | tuple[int, ...] | None = None,
        memory: MemoryMode = "vq",
        preset: Literal["default", "paper"] = "default",
        evidence: bool = True,
        layer_scale: float = 0.1,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ):
        super().__init__()
        if preset not in ("default", "paper"):
            raise ValueError(f"preset must be 'default' or 'paper', got {preset!r}")
        if ffn_kernel < 1 or ffn_kernel % 2 == 0:
            raise ValueError(f"ffn_kernel must be odd, got {ffn_kernel}")
        if len(widths) != len(slots):
            raise ValueError(f"widths and slots must have one entry per stage, got {widths} and {slots}")
        self.in_chans, self.num_classes = in_chans, num_classes
        self.num_features = self.head_hidden_size = widths[-1]
        start = expected_start(_checked_steps("max_steps", max_steps)) if halting_start is None else halting_start
        if not 0 < start < 1:
            raise ValueError(f"halting_start must lie between 0 and 1, got {halting_start}")
        literal = preset == "paper"
        by_evidence = evidence and not literal
        rates = torch.linspace(0, drop_path_rate, len(widths), device="cpu").tolist()
        self.stages = nn.ModuleList()
        self.feature_info: list[dict[str, Any]] = []
        channels, stride = in_chans, 1
        for index, (dim, num_slots) in enumerate(zip(widths, slots, strict=True)):
            kernel, down = (7, 4) if index == 0 else (3, 2)
            bank = SlotMemory(dim, int(dim * code_width), codes, beta, code_decay, literal, by_evidence)
            scale = None if literal else layer_scale
            step = RefinementStep(dim, bank, ffn_ratio, ffn_kernel, slot_ratio, scale, rates[index])
            patches = PatchTokeniser(channels, dim, down) if by_evidence else Tokeniser(channels, dim, kernel, down)
            self.stages.append(Stage(patches, step, num_slots, dim, start))
            channels, stride = dim, stride * down
            self.feature_info.append(dict(num_chs=dim, reduction=stride, module=f"stages.{index}"))
        self.head = ClassifierHead(widths[-1], num_classes, pool_type=global_pool, drop_rate=drop_rate)
        self.apply(_initialise)
        if isinstance(self.head.fc, nn.Linear):
            nn.init.trunc_normal_(self.head.fc.weight, std=0.02)
        self.max_steps, self.fixed_steps, self.memory = max_steps, fixed_steps, memory
        if img_size is not None:
            _check_size(*((img_size, img_size) if isinstance(img_size, int) else img_size))

    # ---- inference switches: arguments of create_model, and attributes that can be set later

    @property
    def max_steps(self) -> int:
        """T_max: the remainder goes to this step if the unit has not halted before."""
        return self._max_steps

    @max_steps.setter
    def max_steps(self, value: int) -> None:
        self._max_steps = _checked_steps("max_steps", value)
        for stage in self._stages():
            stage.max_steps = value

    @property
    def fixed_steps(self) -> tuple[int, ...] | None:
        """Exactly that many steps in each stage, the halting unit ignored; None is dynamic."""
        return self._fixed_steps

    @fixed_steps.setter
    def fixed_steps(self, value: int | tuple[int, ...] | list[int] | None) -> None:
        stages = self._stages()
        if value is not None and not isinstance(value, (tuple, list)):
            value = (value,) * len(stages)
        if value is not None and len(value) != len(stages):
            raise ValueError(f"fixed_steps needs one number or {len(stages)}, got {value}")
        self._fixed_steps = None if value is None else tuple(_checked_steps("fixed_steps", v) for v in value)
        for stage, steps in zip(stages, self._fixed_steps or (None,) * len(stages), strict=True):
            stage.fixed_steps = steps

    @property
    def memory(self) -> MemoryMode:
        """'vq'; 'continuous', Dec(Enc(.)) without the quantiser; 'off', grouped slots passed on unchanged."""
        return self._memory

    @memory.setter
    def memory(self, value: MemoryMode) -> None:
        self._memory: MemoryMode = checked_mode(value)
        for stage in self._stages():
            stage.step.memory.mode = value

    def _stages(self) -> list[Stage]:
        return list(self.stages)  # pyright: ignore[reportReturnType]

    # ---- forward

    def pyramid(
        self, images: Tensor, traced: bool = False, slot_maps: bool = False, stages: int | None = None
    ) -> Pyramid:
        """The maps of the first `stages` stages, or of all; with `traced`, also what each stage did."""
        if images.ndim != 4 or images.shape[1] != self.in_chans:
            raise ValueError(f"expected images (B, {self.in_chans}, H, W), got {tuple(images.shape)}")
        _check_size(images.shape[2], images.shape[3])
        if (at_once := _images_at_once(images)) < images.shape[0] and not traced:
            parts = [self.pyramid(part, stages=stages) for part in images.split(at_once)]
            features = [torch.cat(level) for level in zip(*(part.features for part in parts), strict=True)]
            seen = [part.evidence for part in parts if part.evidence is not None]
            return Pyramid(features, None, [torch.cat(level) for level in zip(*seen, strict=True)] or None)
        run = _run if self.fixed_steps or exporting() else _run_adaptively
        return run(self._stages()[:stages], images, Watch(losses=traced, maps=traced and slot_maps))

    def forward_features(self, images: Tensor) -> Tensor:
        """The last map, weighted so that its mean is that of what was seen."""
        return _final(self.pyramid(images))

    def forward_head(self, features: Tensor, pre_logits: bool = False) -> Tensor:
        return self.head(features, pre_logits=pre_logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))

    def forward_traced(self, images: Tensor, slot_maps: bool = True) -> Traced:
        """Logits, and per stage the steps, halting weights, slot maps, codes and losses of every image.

        Slot maps are large: training does without (`slot_maps=False`).
        """
        found = self.pyramid(images, traced=True, slot_maps=slot_maps)
        assert found.trace is not None
        return Traced(self.forward_head(_final(found)), found.trace)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> list[Tensor] | tuple[Tensor, list[Tensor]]:
        """timm's contract. Every stage ends with its norm, so `norm` changes nothing."""
        if output_fmt != "NCHW":
            raise ValueError(f"output_fmt must be NCHW, got {output_fmt!r}")
        take, last = feature_take_indices(len(self.stages), indices)
        found = self.pyramid(x, stages=last + 1 if stop_early else len(self.stages))
        taken = [found.features[index] for index in take]
        return taken if intermediates_only else (_final(found), taken)

    # ---- training

    def update(self) -> None:
        """Move the codebooks: once after each optimiser step."""
        update_codebooks(self)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        if strict:
            _check_fits(state_dict, self.state_dict())
        return super().load_state_dict(state_dict, strict=strict, assign=assign)

    # ---- the rest of timm's contract

    def no_weight_decay(self) -> set[str]:
        return {f"stages.{index}.initial_slots" for index in range(len(self.stages))}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        return dict(stem=r"^stages\.0\.tokeniser", blocks=r"^stages\.(\d+)")

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        for stage in self._stages():
            stage.save_memory = enable

    def get_classifier(self) -> nn.Module:
        return self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        self.num_classes = num_classes
        self.head.reset(num_classes, global_pool)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the stages that `forward_intermediates(indices)` does not need."""
        take, last = feature_take_indices(len(self.stages), indices)
        self.stages = self.stages[: last + 1]
        if prune_head:
            self.reset_classifier(0, "")
        return take


def logits_and_trace(network: nn.Module, images: Tensor, slot_maps: bool = False) -> tuple[Tensor, Trace | None]:
    """Of any classifier; only a PRISM leaves a trace."""
    return network.forward_traced(images, slot_maps) if isinstance(network, Prism) else (network(images), None)


def _images_at_once(images: Tensor) -> int:
    """How many images to take together. Large ones in large batches outgrow a CPU's cache, and its allocator."""
    if images.device.type != "cpu" or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return images.shape[0]
    return max(1, PIXELS_AT_ONCE // (images.shape[2] * images.shape[3]))


def _final(found: Pyramid) -> Tensor:
    return weighted(found.features[-1], found.evidence[-1]) if found.evidence else found.features[-1]


def _run(stages: list[Stage], images: Tensor, watch: Watch) -> Pyramid:
    levels, traces, given = [], [], Features(images)
    for stage in stages:
        given, trace = stage(given, watch)
        levels.append(given)
        if trace is not None:
            traces.append(trace)
    seen = [level.evidence for level in levels if level.evidence is not None]
    return Pyramid([level.maps for level in levels], Trace(traces) if watch.losses else None, seen or None)


@run_in_python
def _run_adaptively(stages: list[Stage], images: Tensor, watch: Watch) -> Pyramid:
    with room_for_graphs():
        batch_will_change(images)
        return _run_stages_in_python(stages, images, watch)


_run_stages_in_python = run_in_python(_run)


def _initialise(module: nn.Module) -> None:
    """Fan-in scale: at the usual 0.02 both attentions would start nearly uniform."""
    if isinstance(module, HaltingUnit):
        module.reset_parameters()
    elif isinstance(module, (nn.Linear, nn.Conv2d)):
        nn.init.normal_(module.weight, std=module.weight[0].numel() ** -0.5)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _check_size(height: int, width: int) -> None:
    if height < SMALLEST_SIDE or width < SMALLEST_SIDE:
        raise ValueError(f"images must be at least {SMALLEST_SIDE} x {SMALLEST_SIDE}, got {height} x {width}")


def _checked_steps(name: str, value: int) -> int:
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def _check_fits(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Name the first key in which a checkpoint differs from the model."""
    for key, value in wanted.items():
        if key not in found:
            if key.endswith(DERIVED):
                continue
            raise ValueError(f"the checkpoint is from a different model: it has no {key!r}")
        if found[key].shape != value.shape:
            raise ValueError(
                f"the checkpoint is from a different model: {key!r} is {tuple(found[key].shape)} there "
                f"and {tuple(value.shape)} here"
            )
    if extra := next((key for key in found if key not in wanted), None):
        raise ValueError(f"the checkpoint is from a different model: {extra!r} is not in this one")
