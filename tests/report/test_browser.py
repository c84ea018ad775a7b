"""The pages in a real browser: what the script does, what it may not do, and how a phone shows it."""

from pathlib import Path

import pytest

from tests.report.browser import Browser, browser, needs_browser
from tests.report.test_watch import begin, watched
from tests.stages.run_files import COMPLETIONS, make_completion, make_metrics
from tests.stages.test_report import HOSTILE, frozen_arm, make_report

pytestmark = needs_browser

FIGURE = "[...document.querySelectorAll('figure')].find((f) => f.textContent.includes('Entropy'))"


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("run")
    hostile = make_completion(40, completion=HOSTILE, judge="incorrect")
    make_report(folder, completions=[*COMPLETIONS, hostile])
    return (folder / "out" / "page").rename(folder / "page.html").as_uri()


@pytest.mark.parametrize("width", [420, 1280])
@pytest.mark.parametrize("runs_scripts", [True, False])
def test_nothing_is_wider_than_the_screen(tab: Browser, address: str, width: int, runs_scripts: bool) -> None:
    tab.open(address, width=width, runs_scripts=runs_scripts)
    assert tab.value("innerWidth") == width
    assert tab.value("document.documentElement.scrollWidth") == width
    assert tab.value("[...document.querySelectorAll('figure svg')].every((s) => s.clientWidth > 250)")
    assert tab.problems == []


def test_a_phone_shows_the_frozen_arm_and_every_attack_without_scrolling(
    tab: Browser, tmp_path: Path
) -> None:
    make_report(tmp_path, frozen=frozen_arm(tmp_path / "frozen"))
    tab.open((tmp_path / "out" / "page").rename(tmp_path / "page.html").as_uri(), width=420)
    for heading in ("VerifyRM, frozen", "what it is"):
        table = f"[...document.querySelectorAll('.table')].find((t) => t.textContent.includes('{heading}'))"
        assert tab.value(f"{table}.scrollWidth - {table}.clientWidth") == 0, heading


def test_without_scripts_everything_can_be_read(tab: Browser, address: str) -> None:
    tab.open(address, width=1280, runs_scripts=False)
    assert tab.value("document.querySelectorAll('.plot[role=img] svg text').length") > 100
    assert tab.value("document.querySelectorAll('.tools').length") == 0
    assert tab.value("[...document.querySelectorAll('.rollout')].every((row) => row.checkVisibility())")
    assert not tab.value("document.querySelector('.filters').checkVisibility()")


def place_of(tab: Browser, share: float) -> tuple[float, float]:
    """A point over the figure, this share of its width from the left."""
    tab.value(f"{FIGURE}.scrollIntoView({{block: 'center'}})")
    left, top, width, height = tab.value(
        f"(({{left, top, width, height}}) => [left, top, width, height])({FIGURE}.querySelector('svg')"
        ".getBoundingClientRect())"
    )
    return left + share * width, top + height / 2


def ticks(tab: Browser) -> list[str]:
    return tab.value(f"[...{FIGURE}.querySelectorAll('svg > text')].map((each) => each.textContent)")


def test_values_are_read_under_the_pointer_and_a_drag_zooms(tab: Browser, address: str) -> None:
    """make_metrics: entropy falls from .5925 by .0075 a step; step 40 is at the right end."""
    tab.open(address, width=1280)
    before = ticks(tab)
    tab.mouse("Moved", *place_of(tab, 0.99))
    assert tab.value(f"{FIGURE}.querySelector('.tip').textContent") == "step 40entropy: 0.3"
    tab.mouse("Pressed", *place_of(tab, 0.4))
    tab.mouse("Moved", *place_of(tab, 0.6))
    tab.mouse("Released", *place_of(tab, 0.6))
    assert ticks(tab) != before
    tab.value(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === 'whole').click()")
    assert ticks(tab) == before
    tab.value(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === 'log').click()")
    assert "0" not in ticks(tab)
    assert tab.problems == []


def test_rollouts_are_filtered(tab: Browser, address: str) -> None:
    tab.open(address, width=1280)
    shown = "[...document.querySelectorAll('.rollout')].filter((row) => row.checkVisibility()).length"
    total = tab.value(shown)
    pick = (
        "((list, value) => { list.value = value; list.dispatchEvent(new Event('input', {bubbles: true})) })"
    )
    tab.value(f"{pick}(document.querySelectorAll('.filters select')[1], 'unparsable')")
    unparsable = tab.value(shown)
    assert (
        unparsable == tab.value("document.querySelectorAll('.rollout[data-rule=unparsable]').length") < total
    )
    tab.value(f"{pick}(document.querySelector('.filters input'), '0.95')")
    assert tab.value(shown) == 2  # .97, at the start and at the end
    assert tab.value("document.querySelector('.filters output').textContent") == f"2 of {total}"


def test_a_figure_becomes_a_picture(tab: Browser, address: str) -> None:
    """The link that would save it is caught instead of followed."""
    tab.open(address, width=1280)
    tab.value(
        "HTMLAnchorElement.prototype.click = function () { window.saved = [this.download, this.href]; }"
    )
    tab.value(f"[...{FIGURE}.querySelectorAll('button')].find((b) => b.textContent === 'PNG').click()")
    for _ in range(100):
        if tab.value("Boolean(window.saved)"):
            break
    name, content = tab.value("window.saved")
    assert name == "Entropy.png"
    assert content.startswith("data:image/png;base64,")
    assert len(content) > 10_000


def test_a_script_that_is_not_ours_does_not_run(tab: Browser, address: str, tmp_path: Path) -> None:
    """As if escaping had failed."""
    page = Path(address.removeprefix("file://")).read_text()
    changed = tmp_path / "page.html"
    changed.write_text(page.replace("<main>", "<main><script>document.title = 'run'</script>", 1))
    tab.open(changed.as_uri(), width=1280)
    assert tab.value("document.title") == "Cooper run, 40 steps"
    assert any("Content Security Policy" in problem for problem in tab.problems)


def test_a_watched_page_follows_its_run(tab: Browser, tmp_path: Path) -> None:
    live = begin(tmp_path / "train-cooper" / "checkpoint", steps=3)
    with watched(tmp_path) as watcher:
        tab.open(watcher.address, width=420)
        assert tab.value("document.documentElement.scrollWidth") == 420
        assert "3 of 40" in tab.value("document.querySelector('table').textContent")
        live.append(make_metrics(40)[3])
        for _ in range(600):
            if "4 of 40" in tab.value("document.querySelector('table').textContent"):
                break
            tab.call(
                "Runtime.evaluate", expression="new Promise((r) => setTimeout(r, 50))", awaitPromise=True
            )
        assert "4 of 40" in tab.value("document.querySelector('table').textContent")
        assert tab.value("document.querySelectorAll('figure svg').length") > 5
        assert tab.problems == []
    live.close()
