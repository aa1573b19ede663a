"""One file a table or figure."""
