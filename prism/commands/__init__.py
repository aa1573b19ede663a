"""One file per verb. What a file imports at its top is known at once; what takes long is imported when it is called."""
