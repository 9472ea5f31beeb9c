"""Write the pages of the API reference: one for each public module, one for each name in it.

A public module lists what it offers in `__all__`, and that list is the reference: a name that is
added to the module is in the reference, and nothing else is.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from sphinx.pycode import ModuleAnalyzer

MODULES = {
    "gristmill": "What most programs need",
    "gristmill.sources": "Files and other places where records are",
    "gristmill.transforms": "Steps that change, drop or stack elements",
    "gristmill.samplers": "The order of a `DataLoader`",
    "gristmill.sharding": "Which records a process reads",
    "gristmill.options": "Settings of threads, workers, storage and errors",
    "gristmill.experimental": "Grain's experimental datasets and functions",
    "gristmill.checkpoint": "States and Orbax",
    "gristmill.multiprocessing": "Worker processes",
    "gristmill.exporters": "Statistics for Prometheus, OpenTelemetry and TensorBoard",
    "gristmill.monitoring": "Metrics under Grain's names",
    "gristmill.constants": "Names of leaves",
    "gristmill.errors": "Every error that gristmill raises on its own account",
    "gristmill.types": "Protocols and aliases",
    "gristmill.testing": "Test suites for your own sources",
}


PYTHONS_BASES = ["ndarray", "BaseException", "dict", "tuple", "Mapping", "Sequence"]
PYTHONS_BASES += ["object", "Generic", "Protocol", "ABC"]
"""Classes whose methods NumPy and Python describe."""


def public_names(module: ModuleType) -> list[str]:
    """Return the names that a module offers, without the modules among them."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (getattr(value, "__module__", None) == module.__name__ or _comment(module, name))
    ]
    return sorted(
        (name for name in names if not isinstance(getattr(module, name), ModuleType | TypeVar)),
        key=lambda name: (not name[0].isupper(), name.lower()),
    )


def write_pages(folder: Path) -> None:
    """Write a page for each module and one for each name, and delete all others.

    A name is described only once, and so is a method: pages of classes that are derived from
    another public class link to it.
    """
    pages = _pages_by_key()
    written: set[str] = set()
    sections: list[str] = []
    for module_name, purpose in MODULES.items():
        module = importlib.import_module(module_name)
        rows, links, new = [], [], []
        for name in public_names(module):
            value = getattr(module, name)
            page = pages[_key(name, value)]
            if page not in written:
                written.add(page)
                new.append(page)
                _write(folder / f"{page}.md", _describe(page, value, pages))
            link = f"[`{name}`]({page}.md)"
            links.append(link)
            rows.append(f"| {link} | {_summarize(documentation_of(name, value))} |")
        lines = [f"# `{module_name}`", "", f"{purpose}.", "", "| name | |", "|---|---|", *rows]
        _write(
            folder / f"{module_name}.md",
            "\n".join([*lines, "", _toctree((page.rpartition(".")[2], page) for page in new)]),
        )
        sections += [f"## [`{module_name}`]({module_name}.md)", "", f"{purpose}.", ""]
        sections += [" · ".join(links), ""]
    lines = [
        "# API reference",
        "",
        "All public names, by module. Everything else is internal.",
        "",
        *sections,
        _toctree((name, name) for name in MODULES),
    ]
    _write(folder / "index.md", "\n".join(lines))
    current = {"index", *MODULES, *pages.values()}
    for path in sorted(folder.glob("*.md")):
        if path.stem not in current:  # of a name that is no longer public
            path.unlink()


def _pages_by_key() -> dict[object, str]:
    """Return the page of each public name: that of the first module which offers it."""
    pages: dict[object, str] = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name in public_names(module):
            key = _key(name, getattr(module, name))
            pages.setdefault(key, f"{module_name}.{_name_of_page(module, name)}")
    return pages


def _key(name: str, value: object) -> object:
    """Return what names of the same class or function have in common."""
    return (name, id(value)) if _is_data(value) else id(value)


def _name_of_page(module: ModuleType, name: str) -> str:
    """Return the name that a class was defined with, if the module has it: others are aliases."""
    value = getattr(module, name)
    own = name if _is_data(value) else value.__name__
    return own if getattr(module, own, None) is value else name


def documentation_of(name: str, value: object) -> str:
    """Return the docstring of a public name, or the string below its definition.

    >>> import gristmill
    >>> documentation_of("load", gristmill.load).startswith("Return a `DataLoader`")
    True
    >>> documentation_of("EPOCH", gristmill.constants.EPOCH)
    'The pass over the data that a record was read in.'
    """
    if not _is_data(value) or type(value).__module__.startswith("gristmill"):
        return inspect.getdoc(value) or ""
    modules = [module for key, module in sorted(sys.modules.items()) if key.startswith("gristmill")]
    comments = [_comment(module, name) for module in modules if vars(module).get(name) is value]
    return next(filter(None, comments), "")


def _is_data(value: object) -> bool:
    """Return whether a name is a constant or an alias: its docstring is that of another name."""
    is_definition = inspect.isclass(value) or inspect.isroutine(value)
    return not (is_definition and str(value.__module__).startswith("gristmill"))


def _comment(module: ModuleType, name: str) -> str:
    """Return the string below the definition of a name in a module."""
    comments = ModuleAnalyzer.for_module(module.__name__).find_attr_docs()
    return "\n".join(comments.get(("", name), [])).strip()


def _describe(page: str, value: object, pages: dict[object, str]) -> str:
    """Return the page of one name: what its docstring describes, and its members."""
    rest = ""
    if _is_data(value) and not type(value).__module__.startswith("gristmill"):
        comment = documentation_of(page.rpartition(".")[2], value).replace("\n", "\n   ")
        constant = f"   :value: {value!r}\n" if isinstance(value, str) else ""
        directive = f".. py:data:: {page}\n{constant}\n   {comment}"
    elif inspect.isclass(value) and issubclass(value, BaseException):
        directive = f".. autoexception:: {page}\n   :show-inheritance:"
    elif inspect.isclass(value):
        bases = [base for base in value.__mro__[1:] if id(base) in pages]
        elsewhere = {kind.__name__ for base in bases for kind in base.__mro__}
        names = ", ".join(sorted({*PYTHONS_BASES, *elsewhere}))
        directive = f".. autoclass:: {page}\n   :inherited-members: {names}"
        if bases:
            base = pages[id(bases[0])]
            rest = f"\n\nIt also has the attributes and methods of [`{base}`]({base}.md)."
    else:
        directive = f".. auto{'function' if inspect.isroutine(value) else 'data'}:: {page}"
    title = page.rpartition(".")[2]
    return f"# `{title}`\n\n```{{eval-rst}}\n{directive}\n```{rest}"


def _summarize(documentation: str) -> str:
    """Return the first sentences of a docstring, for a cell of a table."""
    lines = documentation.split("\n\n")[0].split("\n")
    return " ".join(lines).replace("|", "\\|").replace("*", "\\*")


def _toctree(pages: Iterable[tuple[str, str]]) -> str:
    """Return the list of pages for the sidebar, each with a short title in plain letters."""
    lines = [f"{title} <{page}>" for title, page in pages]
    return "\n".join(["```{toctree}", ":hidden:", "", *lines, "```"])


def _write(path: Path, content: str) -> None:
    """Write a file unless it has that content, so that Sphinx reads it again only if needed."""
    if not path.exists() or path.read_text(encoding="utf-8") != content + "\n":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n", encoding="utf-8")


def _process_docstring(
    _app: Any, what: str, _name: str, _value: Any, _options: Any, lines: list[str]
) -> None:
    if what in ("attribute", "property"):
        lines[:] = whole_sentence(lines)
    lines[:] = [separate_code(line) for line in lines]


def separate_code(line: str) -> str:
    r"""Let "`Array`s" be code and a letter, which reStructuredText takes for an unclosed quote.

    >>> separate_code("a list of `Array`s")
    'a list of `Array`\\ s'
    """
    return re.sub(r"(?<![`\w])(`[^`]+`)(?=\w)", r"\1\\ ", line)


def whole_sentence(lines: list[str]) -> list[str]:
    """Undo that napoleon takes the words before a colon for the type of an attribute.

    >>> whole_sentence(["those of the shard, or all.", "", ":type: Number of records"])
    ['Number of records: those of the shard, or all.', '']
    """
    last = len(lines) - 1
    while last > 0 and not lines[last]:
        last -= 1
    words = re.fullmatch(":type: (.*)", lines[last]) if last > 0 else None
    return [f"{words[1]}: {lines[0]}", *lines[1:last]] if words else lines


def parsable(signature: str) -> str:
    """Return a signature that Sphinx can parse, so that it shows short names with links.

    >>> parsable("(tables: ~collections.abc.Mapping = <factory>, *args: ~typing.~P)")
    '(tables: ~collections.abc.Mapping = ..., *args: P)'
    """
    signature = re.sub(r"<class '(\w+)'>", r"\1", signature)
    signature = re.sub(r"<built-in function (\w+)>", r"\1", signature)
    signature = re.sub(
        r"type\[~typing\.Any\] \| ~numpy\.dtype\[.*?_DTypeDict \| str", "DTypeLike", signature
    )
    return signature.replace("<factory>", "...").replace("~typing.~P", "P")


def _make_parsable(
    _app: Any,
    _what: str,
    _name: str,
    _value: Any,
    _options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    return signature and parsable(signature), returns and parsable(returns)


def setup(app: Any) -> dict[str, bool]:
    """Write the pages before Sphinx looks for them."""
    write_pages(Path(app.srcdir) / "reference")
    app.connect("autodoc-process-docstring", _process_docstring)
    app.connect("autodoc-process-signature", _make_parsable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
