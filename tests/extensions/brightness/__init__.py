"""A toy task: how bright is an image?"""
