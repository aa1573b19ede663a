"""A label for every image."""
