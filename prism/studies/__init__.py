"""One file per table or figure."""
