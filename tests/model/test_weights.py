import pickle
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from prism.model.weights import halved, load_weights
from tests.model.small import small_prism


@pytest.mark.parametrize("wrap", [lambda w: w, lambda w: {"state_dict": w}, lambda w: {"model": w, "epoch": 3}])
def test_torch_files_however_wrapped(wrap, tmp_path: Path):
    source, target = small_prism(), small_prism()
    torch.save(wrap(source.state_dict()), tmp_path / "w.pt")
    load_weights(target, tmp_path / "w.pt")
    assert all(torch.equal(v, target.state_dict()[k]) for k, v in source.state_dict().items())


class Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("unpickled"),))


def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    torch.save(Bomb(), "bomb.pt")
    Path("plain.pt").write_bytes(pickle.dumps(Bomb()))
    for name in ("bomb.pt", "plain.pt"):
        with pytest.raises(ValueError, match=f"{name} is not a file of weights"):
            load_weights(small_prism(), Path(name))
    assert not Path("unpickled").exists()


def test_what_does_not_fit_is_named(tmp_path: Path):
    torch.save({"a": 1}, tmp_path / "number.pt")
    with pytest.raises(ValueError, match=r"number.pt holds something other than named weights"):
        load_weights(small_prism(), tmp_path / "number.pt")
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        load_weights(small_prism(), tmp_path / "missing.pt")
    for spoilt in (b"", b"this is not an image", bytes(range(256))):
        (tmp_path / "spoilt.pt").write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"spoilt.pt is not a file of weights"):
            load_weights(small_prism(), tmp_path / "spoilt.pt")
    (tmp_path / "text.safetensors").write_text("no")
    with pytest.raises(ValueError, match=r"text.safetensors is not a safetensors file"):
        load_weights(small_prism(), tmp_path / "text.safetensors")
    save_file(small_prism().state_dict(), tmp_path / "prism.safetensors")
    with pytest.raises(ValueError, match=r"prism.safetensors does not fit: .*ResNet") as caught:
        load_weights(timm.create_model("resnet10t"), tmp_path / "prism.safetensors")
    assert "\n" not in str(caught.value)


def test_halved_weights_are_small_and_score_alike(tmp_path: Path):
    torch.manual_seed(0)
    network = small_prism().eval()
    halves = halved(network.state_dict())
    whole = {name for name, value in halves.items() if value.dtype == torch.float32}
    assert whole == {f"stages.{index}.step.memory.codebook.counts" for index in range(len(network.stages))}
    save_file(halves, tmp_path / "half.safetensors")
    other = small_prism().eval()
    load_weights(other, tmp_path / "half.safetensors")
    assert next(other.parameters()).dtype == torch.float32
    images = torch.randn(4, 3, 32, 32)
    network.memory = other.memory = "continuous"  # a rounded feature may have another nearest code
    network.fixed_steps = other.fixed_steps = 2
    torch.testing.assert_close(other(images), network(images), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("kind", [torch.int8, torch.bool, torch.complex64])
def test_numbers_that_are_no_weights_are_refused(kind: torch.dtype, tmp_path: Path):
    """Copied into a network they would be noise, and nobody would notice."""
    weights = small_prism().state_dict()
    torch.save(weights | {"head.fc.weight": weights["head.fc.weight"].to(kind)}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=rf"holds {str(kind)[6:]} instead of weights, in 'head\.fc\.weight'"):
        load_weights(small_prism(), tmp_path / "w.pt")


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.empty(10, 12, device="meta"),
        lambda: torch.quantize_per_tensor(torch.ones(10, 12), 0.1, 0, torch.qint8),
        lambda: torch.ones(10, 12).to_sparse(),
        lambda: torch.ones(1).expand(2**34, 2**10),  # a few bytes, and more than any memory
    ],
    ids=["meta", "quantised", "sparse", "repeated"],
)
@pytest.mark.filterwarnings("ignore")  # torch calls its quantised tensors outdated
def test_tensors_whose_numbers_are_not_there_are_refused(make, tmp_path: Path):
    torch.save(small_prism().state_dict() | {"head.fc.weight": make()}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"w\.pt (holds something other than named weights|is not a file of weights)"):
        load_weights(small_prism(), tmp_path / "w.pt")


def test_a_weight_that_is_not_finite_is_named(tmp_path: Path):
    for spoilt in (float("nan"), float("inf")):
        weights = small_prism().state_dict()
        weights["head.fc.bias"][0] = spoilt
        save_file(weights, tmp_path / "w.safetensors")
        with pytest.raises(ValueError, match=r"not a finite number, in 'head\.fc\.bias'"):
            load_weights(small_prism(), tmp_path / "w.safetensors")


def test_a_number_that_its_type_cannot_hold_is_refused(tmp_path: Path):
    """As float64 it is finite, and infinite as what it is loaded or halved to."""
    weights = small_prism().state_dict()
    weights["head.fc.bias"] = torch.full_like(weights["head.fc.bias"], 1e300, dtype=torch.float64)
    save_file(weights, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"not a finite number, in 'head\.fc\.bias'"):
        load_weights(small_prism(), tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match=r"beyond what float16 holds, in 'head\.fc\.bias'"):
        halved({"head.fc.bias": torch.full((3,), 1e5)})
