"""Examples on the pages: a hook for MkDocs, and an extension for Griffe, which reads the docstrings.

Both are about prompts. Blocks with prompts get the lexer that knows them, so that a button copies the code
alone; docstrings get a section of examples, which Griffe knows by the plural only.
"""

import re
from typing import Any

import griffe


def on_page_markdown(markdown: str, **_: object) -> str:
    """Calls Python with prompts what it is, and leaves out what only doctest reads."""
    markdown = re.sub(r"^( *)```python\n(?=\1>>> )", r"\1```pycon\n", markdown, flags=re.MULTILINE)
    return re.sub(r" *# doctest: \+.*$", "", markdown, flags=re.MULTILINE)


class Examples(griffe.Extension):
    """Puts the heading of examples into the plural."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
