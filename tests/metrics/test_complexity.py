import pytest
import timm
import torch

from prism.metrics.complexity import PAPER_STEPS, by_steps, macs_by_module, parameters, parts, step_cost
from prism.model import refinement


def analytic(dim: int, slots: int, tokens: int, sides: int, codes: int = 512) -> tuple[int, int, int]:
    """MACs of a stage by hand: once per image, of a step, and of the slots' update."""
    projections = 4 * slots * dim * dim  # slot queries, their pull-back through W_k, grouped keys, grouped values
    thin = 3 * slots * tokens * dim + 3 * slots * sides * dim  # tokens; positions, row and column apart
    seen = slots * tokens  # evidence under each slot
    memory = 4 * slots * dim * dim + slots * codes * dim
    hidden = 5 * dim // 2
    token_ffn = tokens * hidden * (2 * dim + 9)
    return sides * dim * dim, projections + thin + seen + memory + token_ffn, slots * 12 * dim * dim


def test_prism_tiny_matches_the_count_by_hand():
    model = timm.create_model("prism_tiny")
    convolutions = sum(
        k * k * i * o * n for k, i, o, n in [(4, 3, 64, 3136), (2, 64, 128, 784), (2, 128, 320, 196), (2, 320, 512, 49)]
    )
    stages = [
        analytic(*shape) for shape in [(64, 16, 3136, 112), (128, 16, 784, 56), (320, 12, 196, 28), (512, 8, 49, 14)]
    ]
    cost = step_cost(model, (224, 224))
    once = convolutions + sum(q for q, _, _ in stages) + 512 * 1000
    assert cost.at_one_step == once + sum(step for _, step, _ in stages)
    assert cost.further_step == [step + slots for _, step, slots in stages]
    assert cost.macs(PAPER_STEPS) <= 1.75e9
    assert 10.4e6 <= parameters(model) <= 11.2e6
    assert model.fixed_steps is None


def test_attention_on_cpu_is_counted():
    """ViT-Ti by hand: the flop counter takes fused attention for free."""
    tokens, dim, depth = 197, 192, 12
    block = tokens * 12 * dim * dim + 2 * tokens * tokens * dim
    expected = 196 * 768 * dim + depth * block + dim * 1000
    assert macs_by_module(timm.create_model("vit_tiny_patch16_224"), (224, 224))[""] == expected


def test_cost_is_linear_in_the_steps():
    model = timm.create_model("prism_nano", num_classes=10)
    cost = step_cost(model, (64, 64))
    model.fixed_steps = (3, 1, 4, 2)
    assert macs_by_module(model, (64, 64))[""] == cost.macs((3, 1, 4, 2))


def test_counting_leaves_the_model_as_it_was():
    model = timm.create_model("prism_nano").train()
    model.stages[0].requires_grad_(False)
    before = [p.requires_grad for p in model.parameters()]
    parts(model, (64, 64))
    assert model.training
    assert [p.requires_grad for p in model.parameters()] == before


@pytest.mark.parametrize("name", ["prism_nano", "resnet18"])
def test_parts_add_up(name: str):
    model = timm.create_model(name)
    *rows, whole = parts(model, (64, 64))
    assert sum(row["parameters"] for row in rows) == whole["parameters"] == parameters(model)
    once = sum(row["MMAC"] for row in rows if not row["part"].endswith("slot_ffn"))
    assert once == pytest.approx(whole["MMAC"], abs=1e-4)


def test_rows_by_steps():
    rows = by_steps(timm.create_model("prism_nano"), (64, 64), [(2.5, 3.2, 3.7, 2.5)])
    assert [row["steps"] for row in rows] == [f"{t}, {t}, {t}, {t}" for t in range(1, 6)] + ["2.5, 3.2, 3.7, 2.5"]
    assert rows[1]["GMAC"] < rows[5]["GMAC"] < rows[3]["GMAC"]
    assert not torch.is_inference_mode_enabled()


def test_slices_are_counted_like_the_whole(monkeypatch: pytest.MonkeyPatch):
    model = timm.create_model("prism_nano", fixed_steps=2)
    whole = macs_by_module(model, (96, 64))
    monkeypatch.setattr(refinement, "HIDDEN_BYTES", 1)
    assert macs_by_module(model, (96, 64)) == whole
