"""Fail on words that the glossary replaces, so that they do not come back.

    python scripts/check_words.py             src/, docs/, README.md and CONTRIBUTING.md
    python scripts/check_words.py PATH ...    some files or folders

The right-hand side is what to write instead; docs/glossary.md defines the terms. A line where a
word is the right one (an API of another library, say) ends with `# words: REASON`. Of Markdown,
prose is checked, not code.
"""

import re
import sys
from pathlib import Path

WORDS = {
    r"gives?|gave|giving|give_\w+": "return, yield, produce, pass",
    r"tells?|told|telling": "report, describe, message",
    r"says?|said|saying": "report, describe, state",
    r"in words": "as a description",
    r"anew": "again, new",
    r"texts": "strings",
    r"pictures?": "image",
    r"crews?": "worker pool",
    r"greet\w*": "send_init",
    r"bury|buried": "reap",
    r"stillborn": "failed start",
    r"shelf|shelves": "mapped slots",
    r"shipments?": "slot transfer",
    r"homeless": "unplaced",
    r"blam(?:e|ed|es|ing)": "add_context, error note",
    r"takings": "shard history",
    r"redeal\w*|redealt|dealt|deals?|dealing": "reshard, distribute",
    r"naps?": "sleep",
    r"patience": "timeout",
    r"mends?|mended|mending": "fix",
    r"at hand": "available, buffered",
    r"meanwhile": "concurrently, in the meantime",
    r"for ever": "indefinitely",
    r"lent": "temporary",
    r"unsure": "needs resync",
    r"who|whom|whoever|nobody|somebody|anybody|everybody": "the caller, the consumer, a worker",
    r"in vain": "failed",
    r"outcomes?": "block result",
    r"looks? again": "poll interval",
    r"portions?": "chunk",
    r"paced?": "block size",
    r"(?<!hugging[ _])faces?": "API",
    r"hopeless": "early stop",
    r"rarer": "backoff",
    r"nonsense|silence": "say what the error is",
    r"thing|things": "say which",
    r"ways? of running": "execution strategy",
    r"(?:goes|go|gone|going|went) on(?: from| with)?": "resume, continue",
    r"laid|lays?": "copied, written",
    r"(?:stands?|stood) (?:at|before)": "is at, stays before, position",
    r"(?:in|takes?|took) the place of": "instead of, replace",
    r"believ\w+": "trust, check",
    r"strangers?": "untrusted",
    r"without a (?:word|trace)": "silently",
}
PATTERN = re.compile("|".join(f"(?P<w{n}>{word})" for n, word in enumerate(WORDS)), re.IGNORECASE)
WHOLE = re.compile(rf"(?<![A-Za-z])(?:{PATTERN.pattern})(?![A-Za-z])", re.IGNORECASE)
CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`|</?[a-z][^>]*>", re.DOTALL | re.MULTILINE)
MADE = re.compile(
    r"docs/(_build|reference|command_line|benchmarks_results|contributing|security|changelog|"
    r"code_of)"
)
WAIVER = re.compile(r"#\s*words: \S")


def main(arguments: list[str]) -> int:
    """Print each word found with its place and its replacement; return 1 if there is any."""
    root = Path(__file__).parents[1]
    pages = [page for page in (root / "docs").rglob("*.md") if not MADE.search(page.as_posix())]
    pages += [root / "README.md", root / "CONTRIBUTING.md"]
    given = [Path(argument) for argument in arguments] or [root / "src", *pages]
    files = sorted(
        file for path in given for file in (path.rglob("*.py") if path.is_dir() else [path])
    )
    count = 0
    for file in files:
        content = file.read_text(encoding="utf-8")
        if file.suffix == ".md":
            content = CODE.sub(lambda found: "\n" * found[0].count("\n"), content)
        for number, line in enumerate(content.splitlines(), start=1):
            if WAIVER.search(line):
                continue
            for match in WHOLE.finditer(line):
                count += 1
                instead = list(WORDS.values())[int((match.lastgroup or "w0")[1:])]
                sys.stdout.write(f"{file}:{number}: {match.group(0)!r}: {instead}\n")
    if count:
        sys.stdout.write(f"{count} words to replace. See docs/glossary.md.\n")
    return int(count > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
