"""A hook for MkDocs: formulas become MathML when the pages are built, so that no page needs a script."""

import html
import re

from latex2mathml.converter import convert


def on_page_content(content: str, **_: object) -> str:
    """Replaces what `pymdownx.arithmatex` marked as formulas."""

    def inline(match: re.Match[str]) -> str:
        return convert(html.unescape(match[1]))

    def display(match: re.Match[str]) -> str:
        return convert(html.unescape(match[1]), display="block")

    content = re.sub(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', display, content, flags=re.DOTALL)
    return re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', inline, content, flags=re.DOTALL)
