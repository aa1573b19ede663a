"""The backbones PRISM is compared with, behind one contract."""
