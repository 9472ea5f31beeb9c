"""The frame of a page about data: one file without scripts, which needs no network."""

from collections.abc import Iterable

from gristmill._metrics.pages.html_table import escape

STYLE = """
.gm { color-scheme: light dark; --back: #ffffff; --text: #1c2127; --soft: #5a6572;
  --line: #d5dae0; --panel: #f5f7f9; --bar: #2f6fc0; --s0: #a9cdf4; --s1: #f8cf9a; --s2: #b6e0b3;
  --s3: #e3bfe8; --s4: #f4b6b4; --s5: #b5e1e6; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { .gm { --back: #14181d; --text: #e4e8ec; --soft: #9aa5b1;
  --line: #343c45; --panel: #1d232a; --bar: #6aa5ee; --s0: #2d567f; --s1: #7d5620; --s2: #35692f;
  --s3: #6b3f73; --s4: #7c3634; --s5: #286069; } }
.gm * { box-sizing: border-box; }
.gm h1 { font-size: 1.4rem; margin: 0 0 .2rem; }
.gm h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.gm p { margin: .3rem 0; } .gm .soft { color: var(--soft); }
.gm .grid { display: grid; gap: .8rem;
  grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); }
.gm .card { background: var(--panel); border-radius: .5rem; padding: .6rem .8rem; min-width: 0; }
.gm .card.wide { grid-column: 1 / -1; }
.gm .card h3 { font-size: 1rem; margin: 0; } .gm dl { margin: .2rem 0 0; font-size: .85rem; }
.gm dt { color: var(--soft); float: left; clear: left; margin-right: .5rem; } .gm dd { margin: 0; }
.gm img { max-width: 100%; image-rendering: auto; border-radius: .3rem; display: block; }
.gm img.small { image-rendering: pixelated; width: 8rem; }
.gm .scroll { overflow-x: auto; } .gm table { border-collapse: collapse; }
.gm th, .gm td { padding: .2rem .9rem .2rem 0; vertical-align: top; text-align: left; }
.gm th { color: var(--soft); font-weight: normal; }
.gm th, .gm td:first-child { white-space: nowrap; }
.gm .scroll td { border-top: 1px solid var(--line); }
.gm td.long { min-width: 18rem; } .gm td img { max-width: 16rem; min-width: 4rem; }
.gm svg { width: 100%; height: auto; display: block; margin-top: .4rem; }
.gm rect { fill: var(--bar); }
.gm svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
.gm .class { display: grid; grid-template-columns: 6rem 1fr 4rem; gap: .4rem; font-size: .85rem; }
.gm .class i { background: var(--bar); height: .7rem; align-self: center; border-radius: .2rem; }
.gm .class span:last-child { text-align: right; color: var(--soft); }
.gm .row { display: flex; height: 1.7rem; border-radius: .3rem; overflow: hidden; margin-top: .2rem;
  border: 1px solid var(--line); }
.gm .row span { overflow: hidden; white-space: nowrap; font-size: .75rem; padding: .2rem .3rem;
  min-width: 0; text-overflow: clip; }
.gm .s0 { background: var(--s0); } .gm .s1 { background: var(--s1); }
.gm .s2 { background: var(--s2); }
.gm .s3 { background: var(--s3); } .gm .s4 { background: var(--s4); }
.gm .s5 { background: var(--s5); }
.gm .fill { background:
  repeating-linear-gradient(45deg, var(--panel) 0 4px, var(--line) 4px 8px); }
.gm .tokens { font-size: .85rem; white-space: pre-wrap; margin: .2rem 0; }
.gm .tokens span { border-radius: .2rem; padding: 0 .15rem; }
"""

_PAGE_STYLE = """
body { margin: 0; } .gm { min-height: 100vh; }
main { margin: 0 auto; padding: 1rem; max-width: 70rem; }
"""


def page(title: str, parts: Iterable[str]) -> str:
    """Return a page. A policy in it forbids scripts and requests, whatever the data contains.

    >>> "<script" in page("<script>", ["<p>text</p>"])
    False

    Args:
        title: The title as text.
        parts: The parts of the page as HTML.
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_PAGE_STYLE}</style></head><body>"
        f"{fragment(['<main>', *parts, '</main>'])}</body></html>\n"
    )


def fragment(parts: Iterable[str]) -> str:
    """Return parts with their style, for a notebook.

    >>> fragment(["<p>text</p>"]).startswith('<div class="gm"><style>')
    True
    """
    return f'<div class="gm"><style>{STYLE}</style>{"".join(parts)}</div>'
