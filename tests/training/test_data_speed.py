"""Whether data keeps up: a row a repeat, and their medians."""

from pathlib import Path

from prism.training.data_speed import measure
from tests.training.small import small_recipe


def test_shares_are_of_the_speed_without_reading(tmp_path: Path):
    *rows, median = measure(small_recipe(tmp_path), steps=2, repeats=3, progress=lambda _: None)
    assert [row["repeat"] for row in rows] == [1, 2, 3]
    for row in rows:
        assert abs(row["share"] - 100 * row["fed"] / row["held"]) < 1e-6
    assert median["share"] == sorted(row["share"] for row in rows)[1]
