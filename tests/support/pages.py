"""Pages as a browser reads them: their text, tags, and addresses to fetch."""

from html.parser import HTMLParser
from typing import Any

TAGS = frozenset({
    "html", "head", "meta", "title", "style", "body", "a", "header", "main", "footer", "h1", "h2", "h3", "p", "dl",
    "dt", "dd", "nav", "ol", "ul", "li", "section", "div", "table", "caption", "thead", "tbody", "tr", "th", "td",
    "strong", "span", "details", "summary", "pre", "code", "figure", "figcaption", "img",
})  # fmt: skip
"""Tags that our templates have; another one came from a stranger."""


class Page(HTMLParser):
    """A page taken apart.

    Attributes
    ----------
    text
        All that people read, with single spaces.
    tags, images
        Names of all tags, and the attributes of all pictures.
    headings
        Levels, in order.
    fetched
        Addresses that a browser would ask for, or that somebody may click.
    """

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.images: list[dict[str, Any]] = []
        self.headings: list[int] = []
        self.fetched: list[str] = []
        self.attributes: set[str] = set()
        self.anchors: set[str] = set()
        self._parts: list[str] = []
        self._hidden = False
        self.feed(html)
        self.text = " ".join(" ".join(self._parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        attributes = dict(attrs)
        self.attributes |= set(attributes)
        self.anchors |= {str(attributes["id"])} if "id" in attributes else set()
        self._hidden = tag == "style"
        if tag == "img":
            self.images.append(attributes)
        if tag in ("h1", "h2", "h3"):
            self.headings.append(int(tag[1]))
        self.fetched += [str(attributes[name]) for name in ("src", "href", "action", "data") if name in attributes]

    def handle_endtag(self, tag: str) -> None:
        self._hidden = self._hidden and tag != "style"

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._parts.append(data)


def check(html: str) -> Page:
    """Parse a page, and check that it is accessible and sends no request."""
    page = Page(html)
    assert set(page.tags) <= TAGS
    assert not {name for name in page.attributes if name.startswith("on") or name == "style"}
    assert all(image["alt"].strip() and image["src"].startswith("data:image/") for image in page.images)
    links = [image for image in page.fetched if not image.startswith("data:image/")]
    assert all(image.startswith("#") and image[1:] in page.anchors for image in links), links
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    assert "url(" not in html.partition("</style>")[0]
    assert 'lang="en"' in html
    assert "prefers-color-scheme: dark" in html
    return page
