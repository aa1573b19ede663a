"""Named runs: a function a recipe, its docstring the command and the figures."""
