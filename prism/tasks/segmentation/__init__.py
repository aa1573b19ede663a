"""A class for every pixel: Semantic FPN on any backbone."""
