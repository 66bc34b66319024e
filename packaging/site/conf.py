"""Sphinx's settings for packaging/site.sh."""
project = "rlk"
extensions = ["myst_parser"]
myst_heading_anchors = 4  # as the repository's browser makes them
html_theme = "furo"
html_title = "rlk"
html_copy_source = False
html_show_copyright = False
highlight_language = "none"  # blocks without a language are commands and pictures
