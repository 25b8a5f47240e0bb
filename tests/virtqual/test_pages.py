"""The links between the pages lead somewhere."""

import re

import pytest

from virtqual.paths import root

PAGES = sorted([*root().glob("*.md"), *root().glob("docs/*.md"), *root().glob("benchmarks/**/*.md")])


def list_anchors(text):
    """Return the anchors that a page's headings get (GitHub's rules); code blocks have no headings."""
    anchors = []
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = anchors.count(anchor)
        anchors.append(f"{anchor}-{count}" if count else anchor)
    return anchors


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(root())))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and anchor not in list_anchors(file.read_text())):
            broken.append(target)
    assert broken == []
