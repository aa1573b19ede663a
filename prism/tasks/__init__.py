"""What networks are trained for and measured by: one folder per task, one protocol for all."""
