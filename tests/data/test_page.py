"""The page on data names what there is."""

from pathlib import Path

import fenchel.data


def test_the_documentation_names_every_data_set_and_option():
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    for name, entry in fenchel.data.DATASETS.items():
        assert f"`{name}`" in page
        for option in entry.options:
            assert f"`{option}`" in page, (name, option)
