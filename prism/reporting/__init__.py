"""What every command shows and writes: tables, figures, pages. Knows no task."""
