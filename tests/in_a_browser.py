"""How tests look at a page: in a real browser, as people and their tools do."""

from pathlib import Path

from axe_playwright_python.sync_playwright import Axe

#: Everything that a keyboard must reach.
REACHABLE = "a[href], summary, [tabindex]"
OPEN_ALL = "for (const one of document.querySelectorAll('details')) one.open = true"


def assert_fit_for_people(browser, path: Path) -> None:
    """Open a page in both colour schemes, wide and narrow, and with the keyboard alone."""
    for scheme in ("light", "dark"):
        # axe-core is put into the page, which the page itself forbids.
        context = browser.new_context(color_scheme=scheme, bypass_csp=True)
        page = context.new_page()
        page.goto(path.as_uri())
        page.evaluate(OPEN_ALL)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{scheme}: {found.generate_report()}"
        context.close()
    _assert_quiet(browser, path)
    _assert_narrow(browser, path)
    _assert_by_keyboard(browser, path)


def _assert_quiet(browser, path: Path) -> None:
    """Nothing is asked for but the page itself, and the browser has nothing to say."""
    page = browser.new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    page.evaluate(OPEN_ALL)
    assert asked == [path.as_uri()]
    assert said == []
    assert page.locator("h1").count() == 1
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()


def _assert_narrow(browser, path: Path) -> None:
    """A page of 320 pixels is read by scrolling in one direction, and no text is squeezed into a column."""
    page = browser.new_page(viewport={"width": 320, "height": 640})
    page.goto(path.as_uri())
    page.evaluate(OPEN_ALL)
    widest = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(e => !e.closest('svg, thead') "
        "&& e.getBoundingClientRect().right > 321).slice(0, 3).map(e => e.outerHTML.slice(0, 120))"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 320, widest
    squeezed = page.evaluate(
        "[...document.querySelectorAll('p, li, caption, td, th, figcaption, summary')].filter(e => "
        "!e.closest('thead') && e.getClientRects().length && e.innerText.length > 60 "
        "&& e.getBoundingClientRect().width < 80).map(e => e.outerHTML.slice(0, 120))"
    )
    assert squeezed == [], squeezed
    page.close()


def _assert_by_keyboard(browser, path: Path) -> None:
    """The tab key comes to all that can be opened, followed or scrolled, and Enter opens it."""
    page = browser.new_page()
    page.goto(path.as_uri())
    shown = page.evaluate(
        f"[...document.querySelectorAll('{REACHABLE}')].filter(e => e.checkVisibility()).length"
    )
    reached = set()
    for _ in range(shown):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(f"[...document.querySelectorAll('{REACHABLE}')].indexOf(document.activeElement)")
        )
    assert len(reached - {-1}) == shown
    closed = page.locator("details:not([open]) > summary").first
    if closed.count():
        closed.focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.parentElement.open")
    page.close()
