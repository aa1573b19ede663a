"""Data sets and transforms; the embedded generated scenes."""
