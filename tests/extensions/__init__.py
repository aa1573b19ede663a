"""What a newcomer adds, each in one file or folder: a task, a mask, a baseline, a study, a recipe."""
