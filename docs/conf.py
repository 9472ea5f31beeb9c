"""Configuration of the documentation site: `make docs` builds it into `docs/_build/html`."""

import socket
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from gristmill._base.version import VERSION

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))
PYPROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))

project = "gristmill"
author = "The gristmill authors"
copyright = "The gristmill authors, Apache-2.0"
version = release = VERSION

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "myst_nb",
    "api_reference",  # docs/_ext
    "command_reference",
    "root_pages",
    "llms_txt",
]
exclude_patterns = ["_build", "_ext"]

# Internal types of arguments and results, which the descriptions explain.
_INTERNAL = (
    r"Supports\w+|HasStats|BatchSource|CheckpointableIterator|Columns|Dataset|DeferredFolder|"
    "ElementView|FileInstruction|IntegerSampler|LeafSummary|LoaderEpochs|Placement|Remainder|"
    "RecentSkip|Sample|SplitSource|_Default"
)

# Every name in the reference must lead somewhere, but for these.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!gristmill\.)[\w.]+"),  # of other projects, whose sites may not be reachable
    ("py:class", r"gristmill\._.*\.([A-Z]|[A-Z]\w*T|[A-Z]_co)"),  # type variables
    ("py:class", rf"gristmill\._.*\.({_INTERNAL})"),
]

# Docstrings are written in Google's style, with Markdown's `code`.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600

html_theme = "sphinx_book_theme"
html_title = "gristmill"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/logo-light.svg"
html_theme_options = {
    "logo": {
        "text": "gristmill",
        "image_light": "_static/logo-light.svg",
        "image_dark": "_static/logo-dark.svg",
    },
    "repository_url": PYPROJECT["project"]["urls"]["Source"],
    "repository_branch": "main",
    "path_to_docs": "docs",
    "use_repository_button": True,
    "use_issues_button": True,
    "use_edit_page_button": True,
    "launch_buttons": {"colab_url": "https://colab.research.google.com"},
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "home_page_in_toc": True,
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def _is_reachable(url: str) -> bool:
    """Return whether a site can be linked to, which takes its list of names."""
    try:
        socket.create_connection((urlsplit(url).hostname, 443), timeout=3).close()
    except OSError:
        return False
    return True


_SITES = {
    "python": "https://docs.python.org/3",
    "numpy": "https://numpy.org/doc/stable",
    "jax": "https://docs.jax.dev/en/latest",
    "grain": "https://google-grain.readthedocs.io/en/latest",
    "orbax": "https://orbax.readthedocs.io/en/latest",
    "flax": "https://flax.readthedocs.io/en/latest",
}
intersphinx_mapping = {name: (url, None) for name, url in _SITES.items() if _is_reachable(url)}
