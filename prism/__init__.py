"""PRISM: a vision backbone that organises, recalls, refines, and knows when to stop.

Importing the package registers `prism_nano`, `prism_tiny`, `prism_small` and `prism_base` with timm, and the baselines
that timm does not have: BiFormer, BiXT, PaCa-ViT and DeBiFormer.
"""

from prism import baselines
from prism.model import variants
from prism.model.backbone import Prism, Pyramid, Trace, Traced
from prism.model.memory import Codebook, update_codebooks

__version__ = "0.1.0"
__all__ = ["Codebook", "Prism", "Pyramid", "Trace", "Traced", "baselines", "update_codebooks", "variants"]
