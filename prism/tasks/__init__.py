"""A network, its loss and its measure, task by task."""
