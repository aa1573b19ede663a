"""What a network does with images, as pure functions on both: no files, no tables, no study."""
