"""The backbones PRISM is compared with, behind one contract.

Importing the package registers BiFormer, BiXT, PaCa-ViT and DeBiFormer with timm; the others come from timm itself.
"""

from prism.baselines import biformer, bixt, debiformer, paca
from prism.baselines.official import convert, official_state_dict

__all__ = ["biformer", "bixt", "convert", "debiformer", "official_state_dict", "paca"]
