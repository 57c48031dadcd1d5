"""How a comparison is shown: tables, in the terminal and as HTML, and the page."""
