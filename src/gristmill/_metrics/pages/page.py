"""The frame of HTML pages: their style, and the policy that keeps scripts and networks out."""

import secrets

from gristmill._metrics.pages.html_table import escape

STYLE = """
.run { color-scheme: light dark; --back: #ffffff; --text: #1c2127; --soft: #5a6572;
  --line: #d5dae0; --panel: #f4f6f8; --cpu: #2f6fc0; --waited: #d08700; --lock: #9a4fb0;
  --core: #8d98a4; --good: #1f7a48; --bad: #b3372b; --fair: #8f5f00;
  --c0: #1b8a99; --c1: #c8558a; --c2: #5b9a2f; --c3: #8a5a2b; --c4: #5560c8; --c5: #c2493d;
  --c6: #8a7a2f; --c7: #52606d; --idle: #dfe4e9; --shade: #5a657280;
  color: var(--text); background: var(--back);
  border-radius: .4rem; padding: .5rem .7rem;
  font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; text-align: left; }
@media (prefers-color-scheme: dark) { .run { --back: #14181d; --text: #e4e8ec; --soft: #9aa5b1;
  --line: #343c45; --panel: #1d232a; --cpu: #6aa5ee; --waited: #eab042; --lock: #cf8ee2;
  --core: #6b7681; --good: #6fd39b; --bad: #ff9488; --fair: #eab042;
  --c0: #4fb9c7; --c1: #ec8cb8; --c2: #94cc66; --c3: #c99a68; --c4: #98a1f5; --c5: #e67a6e;
  --c6: #b8a75a; --c7: #8795a3; --idle: #2c343c; --shade: #9aa5b180; } }
.run * { box-sizing: border-box; }
.run h1 { font-size: 1.5rem; line-height: 1.25; margin: .2rem 0; }
.run h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
.run p { margin: .3rem 0; } .run .soft, .run figcaption { color: var(--soft); }
.run .good { color: var(--good); } .run .fair { color: var(--fair); }
.run .bad { color: var(--bad); }
.run .numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr));
  gap: .6rem; margin: 1rem 0; }
.run .numbers div { background: var(--panel); border-radius: .5rem; padding: .5rem .7rem;
  color: var(--soft); line-height: 1.3; }
.run .numbers b { display: block; font-size: 1.25rem; color: var(--text); }
.run .verdict { background: var(--panel); border-left: 4px solid var(--cpu); border-radius: .4rem;
  padding: .6rem .9rem; }
.run .verdict ul { margin: .4rem 0; padding: 0; list-style: none; }
.run .verdict li { display: flex; gap: .7rem; margin: .3rem 0; align-items: baseline; }
.run .verdict li b { flex: none; min-width: 3.2rem; text-align: right; font-size: 1.15rem;
  color: var(--good); }
.run .tag { background: var(--text); color: var(--back); border-radius: .3rem;
  padding: .05rem .45rem; font-size: .85rem; white-space: nowrap; margin-right: .4rem; }
.run code { font: .92em ui-monospace, monospace; }
.run ol.steps { list-style: none; margin: 0; padding: 0; }
.run ol.steps li { border: 1px solid var(--line); border-radius: .5rem; padding: .45rem .7rem;
  margin: 0; }
.run ol.steps li + li { margin-top: 1.2rem; position: relative; }
.run ol.steps li + li::before { content: "\\2193"; position: absolute; top: -1.4rem; left: 1rem;
  color: var(--soft); }
.run ol.steps li.slowest { border: 2px solid var(--waited); }
.run ol.steps li.end { border-style: dashed; }
.run .name { display: flex; justify-content: space-between; gap: 1rem; }
.run .name span:last-child { white-space: nowrap; font-variant-numeric: tabular-nums; }
.run .bar { display: flex; height: .6rem; margin-top: .3rem; background: var(--panel);
  border-radius: .3rem; overflow: hidden; }
.run .cpu { background: var(--cpu); } .run .waited { background: var(--waited); }
.run .lock { background: var(--lock); } .run .core { background: var(--core); }
.run .key { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .5rem 0; }
.run .dot { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem;
  margin-right: .35rem; vertical-align: -.05rem; }
.run .charts { display: grid; gap: 1rem 1.6rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 16rem), 1fr)); }
.run figure { margin: 0; min-width: 0; } .run svg { display: block; width: 100%; }
.run .plot { display: grid; grid-template-columns: auto 1fr; column-gap: .5rem; margin-top: .2rem;
  font-size: .75rem; color: var(--soft); font-variant-numeric: tabular-nums; }
.run .plot svg { height: 7rem; }
.run .plot .y { display: flex; flex-direction: column; justify-content: space-between;
  text-align: right; line-height: 1; margin: -.4em 0; }
.run .plot .x { grid-column: 2; display: flex; justify-content: space-between; }
.run .grid { stroke: var(--line); vector-effect: non-scaling-stroke; }
.run .line { fill: none; stroke: var(--cpu); stroke-width: 1.8; vector-effect: non-scaling-stroke; }
.run .area { fill: var(--cpu); opacity: .13; }
.run .tracks { display: grid; grid-template-columns: minmax(4rem, auto) 1fr; gap: 2px .7rem;
  align-items: center; font-size: .8rem; color: var(--soft); }
.run .tracks span { white-space: nowrap; overflow: hidden; text-overflow: ellipsis;
  max-width: 11rem; }
.run .tracks svg { height: .9rem; background: var(--panel); }
.run .tracks .x { grid-column: 2; display: flex; justify-content: space-between; }
.run .c0 { fill: var(--c0); background: var(--c0); }
.run .c1 { fill: var(--c1); background: var(--c1); }
.run .c2 { fill: var(--c2); background: var(--c2); }
.run .c3 { fill: var(--c3); background: var(--c3); }
.run .c4 { fill: var(--c4); background: var(--c4); }
.run .c5 { fill: var(--c5); background: var(--c5); }
.run .c6 { fill: var(--c6); background: var(--c6); }
.run .c7 { fill: var(--c7); background: var(--c7); }
.run .idle { fill: var(--idle); background: var(--idle); }
.run .wide { overflow-x: auto; background:
    linear-gradient(to right, var(--back) 40%, transparent) left / 2.5rem 100% no-repeat local,
    linear-gradient(to left, var(--back) 40%, transparent) right / 2.5rem 100% no-repeat local,
    linear-gradient(to right, var(--shade), transparent) left / 1rem 100% no-repeat scroll,
    linear-gradient(to left, var(--shade), transparent) right / 1rem 100% no-repeat scroll; }
.run table { border-collapse: collapse; width: 100%;
  font-variant-numeric: tabular-nums; }
.run th, .run td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line);
  background: none; } .run th:last-child, .run td:last-child { padding-right: 0; }
.run td:first-child { min-width: 9rem; }
.run th { color: var(--soft); font-weight: 500; }
.run summary { cursor: pointer; color: var(--soft); margin: .6rem 0; }
@media (max-width: 40rem) { .run h1 { font-size: 1.25rem; } .run .plot svg { height: 5.5rem; }
  .run .tracks { grid-template-columns: minmax(0, 1fr); gap: 1px; }
  .run .tracks > span { max-width: none; line-height: 1.2; margin-top: .25rem; }
  .run .tracks .x { grid-column: 1; } .run table { font-size: .85rem; } }
"""

_PAGE_STYLE = """
:root { color-scheme: light dark; }
body { margin: 0; background: #ffffff; }
@media (prefers-color-scheme: dark) { body { background: #14181d; } }
body > .run { margin: 0 auto; max-width: 64rem; padding: 1rem; border-radius: 0; }
"""


def page_html(title: str, body: str, *, script: str = "") -> str:
    """Return a page that loads nothing from elsewhere.

    >>> page = page_html("<run>", "<p>text</p>")
    >>> "&lt;run&gt;" in page, "script-src" in page
    (True, False)

    Args:
        title: Its title, as text.
        body: What it shows, as HTML.
        script: A script of ours, which may load from the server of the page. By default the policy
            of the page allows no script and no network.
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    code = ""
    if script:
        nonce = secrets.token_urlsafe(16)
        policy += f"; script-src 'nonce-{nonce}'; connect-src 'self'"
        code = f'<script nonce="{nonce}">{script}</script>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_PAGE_STYLE}</style></head>"
        f"<body>{fragment_html(body)}{code}</body></html>\n"
    )


def fragment_html(body: str) -> str:
    """Return HTML with its style, for a cell of a notebook.

    >>> fragment_html("<p>text</p>").startswith('<div class="run"><style>')
    True
    """
    return f'<div class="run"><style>{STYLE}</style>{body}</div>'
