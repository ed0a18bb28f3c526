"""Sphinx's settings; infra/site/build.py copies this file beside the pages."""

project = "Headway"
copyright = "the Headway authors"
html_title = "Headway"
extensions = ["myst_nb", "sphinx_copybutton"]
root_doc = "index"
html_theme = "furo"
html_show_sourcelink = False
templates_path: list[str] = []
myst_heading_anchors = 4
"""Anchors as GitHub makes them."""
myst_links_external_new_tab = False
nb_execution_mode = "off"
"""The tests execute the notebook; the page shows what it has."""
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
"""A page may begin below its first level, and a block may elide parts of its language with dots."""
