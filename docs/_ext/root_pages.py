"""Copy the pages at the root of the repository into the site, with links that fit there."""

import re
from pathlib import Path
from typing import Any

PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code_of_conduct.md",
}
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#]+)(#[^)]*)?\)")


def relink(text: str, repository: str) -> str:
    """Let links lead to pages of the site, or else to files of the repository.

    >>> relink("[a](docs/a.md#b) [s](SECURITY.md) [f](src/f.py)", "https://host/project")
    '[a](a.md#b) [s](security.md) [f](https://host/project/blob/main/src/f.py)'
    """

    def target(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        if path in PAGES:
            return f"]({PAGES[path]}{anchor})"
        if path.startswith("docs/"):
            return f"]({path.removeprefix('docs/')}{anchor})"
        return f"]({repository}/blob/main/{path}{anchor})"

    return LINK.sub(target, text)


def relink_up(text: str, repository: str, *, page: str = "index") -> str:
    """Do the same for the links of a page in `docs/` that lead out of it.

    >>> relink_up("[s](../SECURITY.md) [a](a.md)", "https://host/project")
    '[s](security.md) [a](a.md)'
    >>> relink_up("[s](../../SECURITY.md) [a](../a.md)", "https://host", page="how_to/images")
    '[s](../security.md) [a](../a.md)'
    """
    depth = page.count("/")
    out = re.compile(rf"\]\((\.\./){{{depth + 1}}}([^)]+)\)")

    def target(match: re.Match[str]) -> str:
        link = relink(f"]({match[2]})", repository)
        return link if "://" in link else f"]({'../' * depth}{link[2:]}"

    return out.sub(target, text)


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before Sphinx looks for them."""
    folder = Path(app.srcdir)
    repository = app.config["html_theme_options"]["repository_url"]
    for name, page in PAGES.items():
        content = relink((folder.parent / name).read_text(encoding="utf-8"), repository)
        path = folder / page
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")

    def read(_app: Any, name: str, source: list[str]) -> None:
        source[0] = relink_up(source[0], repository, page=name)

    app.connect("source-read", read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
