"""Write `llms.txt`: the pages of the site with one sentence each, for programs that read it."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from docutils import nodes


def first_sentence(paragraphs: Iterable[str]) -> str:
    r"""Return the first sentence of the first paragraph that has words.

    >>> first_sentence(["", "A state is a position. It is\nsmall.", "See below."])
    'A state is a position.'
    >>> first_sentence(["Read `x.parquet`, for\nexample:"])
    'Read `x.parquet`, for example:'
    >>> first_sentence([])
    ''
    """
    words = next(filter(None, (" ".join(paragraph.split()) for paragraph in paragraphs)), "")
    sentence = re.match(r".*?\.(?=\s|$)", words)
    return sentence[0] if sentence else words


def write_list(app: Any, error: Exception | None) -> None:
    """Write the list beside the pages, after they were built."""
    if error or app.builder.name != "html":
        return
    lines = [
        "# gristmill",
        "",
        "> The data loader that feeds JAX: Grain's API, the same elements, much faster.",
        "",
    ]
    for name in sorted(app.env.found_docs):
        paragraphs = app.env.get_doctree(name).findall(nodes.paragraph)
        prose = (part for part in paragraphs if not isinstance(part.parent, nodes.entry))
        sentence = first_sentence("".join(part.findall(nodes.Text)) for part in prose)
        lines.append(f"- [{app.env.titles[name].astext()}]({name}.html): {sentence}")
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Write the list at the end of the build."""
    app.connect("build-finished", write_list)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
