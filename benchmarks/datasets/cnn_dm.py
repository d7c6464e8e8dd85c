"""CNN/DailyMail: news articles with highlights, to be summarised.

The turn is "Summarize the following article." and the article. Files are rows with `article`,
`highlights` and `id`, as on the hub, or one object with a list `articles`, whose texts have no
references and so no task; those are named by their position, from 1.

Source: Hermann et al. 2015 (arXiv 1506.03340), See et al. 2017 (arXiv 1704.04368); hub
abisee/cnn_dailymail, version 3.0.0 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.datasets import DATASETS
from benchmarks.datasets.base import Prompt
from benchmarks.datasets.file_loader import task_of
from benchmarks.datasets.hub import HubLoader
from benchmarks.datasets.reader import Faults
from benchmarks.datasets.rows import Row

INSTRUCTION = "Summarize the following article."


@DATASETS.register("cnn_dm")
@dataclass(frozen=True, kw_only=True)
class CnnDm(HubLoader):
    """One file, which is the test split; a folder with a file per split; or the hub."""

    splits = ("test", "train", "validation")
    files = ("*_metadata.json",)
    address = "abisee/cnn_dailymail"
    pinned = "96df5e686bee6baa90b8bee7c28b81fa3fa6223d"
    hub_config = "3.0.0"

    def read(self, file: Path, faults: Faults, first_number: int) -> list[Row]:
        """A row per article."""
        rows = super().read(file, faults, first_number)
        return [article for row in rows for article in _articles(row)]

    def prompt(self, row: Row) -> Prompt:
        """Article and highlights."""
        highlights = row.optional_text("highlights")
        references = (highlights,) if highlights else ()
        return Prompt(
            prompt_id=row.text("id") if row.has("id") else str(row.number),
            category="cnn_dm",
            turns=(f"{INSTRUCTION}\n\n{row.text('article')}",),
            references=references,
            task=task_of("rouge_l", references),
        )


def _articles(row: Row) -> Iterator[Row]:
    """The row itself, or the articles that it lists."""
    articles = row.fields.get("articles")
    if not isinstance(articles, list):
        yield row
        return
    for index, article in enumerate(articles):
        yield replace(row, number=row.number + index, fields={"article": article})
