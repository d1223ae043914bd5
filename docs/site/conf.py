"""Settings of the documentation's site; `build.py` makes what it is built from."""

import re

from sphinx.application import Sphinx

from batchqueue_async import __version__

project = "batchqueue_async"
author = "The batchqueue_async maintainers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
html_theme = "furo"
html_title = f"batchqueue_async {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False

# The anchors that links use are those of the repository's pages.
myst_heading_anchors = 4
# A page that is a README of a folder begins below the first level.
suppress_warnings = ["myst.header"]

# What docstrings set in single backticks is code.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_type_aliases = {"HandlerLike": "HandlerLike"}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False


def setup(app: Sphinx) -> None:
    """Set what no setting is for."""
    # Before napoleon's.
    app.connect("autodoc-process-docstring", keep_colon, priority=100)
    app.connect("html-page-context", let_code_break)


def keep_colon(*event: object) -> None:
    """Let napoleon not take an attribute's first words for its type."""
    _, what, _, _, _, lines = event
    assert isinstance(lines, list)
    if what in ("attribute", "property") and lines:
        lines[0] = lines[0].replace(": ", " \u2013 ")


def let_code_break(*event: object) -> None:
    """Let code in a line break between words, not within: phones are narrow."""
    context = event[3]
    assert isinstance(context, dict)
    code = re.compile(r'(?<=<span class="pre">)[^<]+')
    ends = re.compile(r"(?<=[._(,/=])(?=[^\W\d])")
    context["body"] = code.sub(
        lambda found: ends.sub("<wbr>", found[0]), context.get("body", "")
    )
