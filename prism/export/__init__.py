"""A network as a file that other engines run."""
