"""Sphinx settings. `make docs` builds with -W: every warning is an error."""

import os
import sys
from pathlib import Path

import torch

import khot

sys.path.insert(0, str(Path(__file__).parent / "_ext"))
os.environ.setdefault("MPLBACKEND", "Agg")
torch.set_num_threads(1)

project = "khot"
author = "The khot authors"
copyright = "2026, The khot authors"
release = version = khot.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "documented",
    "explorer",
]
html_math_renderer = "mathml"
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_ext"]
# The front page and the contributor's guide live at the root of the repository.
suppress_warnings = ["myst.xref_missing", "config.cache"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
napoleon_use_rtype = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "abort_on_example_error": True,
    "show_memory": False,
    "min_reported_time": 1,
    "download_all_examples": False,
    "remove_config_comments": True,
}

html_theme = "furo"
html_title = f"khot {release}"
html_static_path = ["_static"]
html_css_files = ["khot.css"]
