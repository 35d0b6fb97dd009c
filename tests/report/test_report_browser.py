"""The report in a real browser: it draws, answers, and asks for nothing."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from coverings import in_full
from pollux.inspection.hierarchy import Hierarchy
from pollux.report import Findings, write_page
from report_pages import PAYLOADS

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [in_full, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")]

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
HOSTILE = "</script><img src=x onerror=alert(1)> \"'& مرحبا\x00"
# A picture is drawn in an animation frame, and may be asked for in one.
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))"

Open = Callable[..., Any]


def blobs(n: int = 300, K: int = 5, used: int = 3, **more: Any) -> Findings:
    generator = np.random.default_rng(0)
    centres = np.array([[0, 0, 0], [9, 0, 4], [0, 9, -4], [9, 9, 0], [5, 16, 2], [-8, 12, 1]])[:used]
    X = centres[generator.integers(0, used, n)] + generator.normal(size=(n, 3))
    logits = np.full((n, K), -40.0)
    logits[:, :used] = -0.05 * ((X[:, None] - centres) ** 2).sum(2)
    p = softmax(logits, axis=1)
    p = p[:, np.argsort(-np.bincount(p.argmax(1), minlength=K), kind="stable")]
    given = {
        "title": "Blobs",
        "probabilities": p,
        "points": X[:, :2],
        "axes": ("first", "second"),
        "features": X,
        "feature_names": ["width", "height", "depth"],
        "row_names": [f"row {j}" for j in range(n)],
        "classes": np.array(["a", "b", "c"])[np.arange(n) % 3],
        "history": {"objective": np.linspace(0, 1, 50).tolist(), "clusters": [5] * 20 + [3] * 30},
        "settings": {"Model": "linear"},
        "command": "pollux cluster blobs.csv",
    }
    return Findings(**(given | more))


def regions() -> Findings:
    """32 clusters in four regions, whose names do not all find room at once."""
    centres = np.array([[x, y] for y in range(4) for x in range(8)], dtype=np.float64)
    group = (centres[:, 0] >= 4) + 2 * (centres[:, 1] >= 2)
    centres += 1.5 * np.column_stack([group % 2, group // 2])
    centres = centres[np.argsort(group, kind="stable")]
    n = 640
    labels = np.arange(n) % 32
    # Within regions first, then these.
    order = [list(range(8 * g, 8 * g + 8)) for g in range(4)]
    linkage, number, roots = [], 32, []
    for own in order:
        root, count = own[0], 1
        for each in own[1:]:
            count += 1
            linkage.append([root, each, 0.1 + 0.001 * len(linkage), count])
            root, number = number, number + 1
        roots.append(root)
    linkage += [[roots[0], roots[1], 0.8, 16], [roots[2], roots[3], 0.9, 16], [number, number + 1, 1, 32]]
    spots = centres[labels] + 0.15 * np.random.default_rng(0).normal(size=(n, 2))
    word = "a sentence of many words about the"
    return blobs(
        n=n,
        probabilities=np.eye(32)[labels],
        points=spots,
        features=None,
        feature_names=(),
        classes=None,
        row_names=[f"{word} {['north', 'south', 'west', 'east'][k // 8]} {k}" for k in labels],
        cluster_names={k: f"the long name of a cluster, {k}" for k in range(32)},
        hierarchy=Hierarchy(np.array(linkage, dtype=np.float64), np.linspace(1, 0, 32), labels),
    )


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pages")
    hostile = blobs(
        title=HOSTILE,
        feature_names=[HOSTILE + str(j) for j in range(3)],
        row_names=[HOSTILE] * 300,
        classes=np.array([HOSTILE, "b"] * 150),
        axes=(HOSTILE, HOSTILE),
        history={HOSTILE: [1.0, 2.0]},
    )
    every = " ".join(PAYLOADS)
    payloads = blobs(
        title=every,
        feature_names=[f"{text}={text}" for text in PAYLOADS[:3]],
        shares=frozenset([f"{PAYLOADS[0]}={PAYLOADS[0]}"]),
        row_names=[PAYLOADS[j % len(PAYLOADS)] for j in range(300)],
        classes=np.array(PAYLOADS)[np.arange(300) % len(PAYLOADS)],
        axes=PAYLOADS[2:4],
        history={name: [1.0, 2.0] for name in PAYLOADS},
        settings=dict(zip(PAYLOADS, PAYLOADS, strict=True)),
        notes=PAYLOADS,
        command=every,
    )
    images = np.zeros((300, 8, 8), np.uint8)
    images[np.arange(300), np.arange(300) % 8] = 255
    far = blobs(classes=np.array(["a", "", "c"] * 100))
    far.points[:5] *= 500
    shares = blobs(
        features=np.column_stack([blobs().features, np.eye(3)[np.arange(300) % 3]]),
        feature_names=["width", "height", "depth", "town=Bonn", "town=Köln", "town=x=y"],
        shares=frozenset(["town=Bonn", "town=Köln", "town=x=y"]),
    )
    pages = {
        "far": far,
        "parties": blobs(
            cluster_names={
                k: f"Political Affiliation at Appointment is {party}, rather high Age at Appointment"
                for k, party in enumerate(["Whig", "Federalist", "Republican"])
            }
        ),
        "shares": shares,
        "tree": blobs(
            n=600,
            K=6,
            used=6,
            hierarchy=Hierarchy(
                np.array([[0, 1, 0.1, 2], [2, 3, 0.2, 2], [6, 7, 0.5, 4], [4, 5, 0.6, 2], [8, 9, 1, 6]]),
                np.linspace(1, 0, 6),
                blobs(n=600, K=6, used=6).labels,
            ),
            outliers=np.arange(600) % 60 == 0,
            scores=-1.0 - (np.arange(600) % 60 == 0),
        ),
        "regions": regions(),
        "maps": blobs(points=None, seen=blobs().features),
        "blobs": blobs(),
        "hostile": hostile,
        "payloads": payloads,
        "images": blobs(images=images),
        "bare": Findings(title="Bare", probabilities=np.ones((3, 1)), points=np.eye(3)[:, :2], axes=("x", "y")),
        "nowhere": blobs(points=np.full((300, 2), np.nan)),
        "many": blobs(n=50_000, K=6, used=6, row_names=None),
        "long": blobs(feature_names=["n" * 200, "some words " * 18, "ok"], classes=np.array(["c" * 200] * 300)),
    }
    for name, findings in pages.items():
        write_page(findings, made / f"{name}.html")
    return made


@pytest.fixture
def visit(browser: Any, folder: Path) -> Iterator[Open]:
    """Opens a page without a network, and fails if it complains or asks for anything but itself."""
    contexts, complaints = [], []

    def visit(name: str, width: int = 1200, height: int = 850, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, offline=True, **options)
        contexts.append(context)
        page = context.new_page()
        address = (folder / f"{name}.html").as_uri()

        def asked(request: Any) -> None:
            if request.url.split("#")[0] != address and not request.url.startswith("data:"):
                complaints.append(request.url)

        page.on("request", asked)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(address)
        if options.get("java_script_enabled", True):
            page.evaluate(TWO_FRAMES)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert complaints == []


def locate(page: Any, row: int) -> tuple[float, float]:
    page.locator("#map canvas").scroll_into_view_if_needed()
    x, y = page.evaluate("row => pollux.locate(row)", row)
    return x, y


def pixels(page: Any) -> str:
    page.evaluate(TWO_FRAMES)
    drawn: str = page.evaluate("document.querySelector('#map canvas').toDataURL()")
    return drawn


def wait_until(page: Any, condition: str) -> None:
    """Ask until it holds: the page's policy lets nothing ask from within."""
    for _ in range(200):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"It never holds: {condition}")


def overflow(page: Any) -> float:
    wider: float = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return wider


@pytest.mark.parametrize("name", ["blobs", "hostile", "images", "bare", "nowhere"])
def test_pages_open_without_a_complaint(visit: Open, name: str) -> None:
    page = visit(name)
    assert page.locator("h1").inner_text()
    assert page.evaluate("document.querySelector('#map canvas').width") > 300


def test_hovering_tells_of_the_sample_below(visit: Open) -> None:
    page, findings = visit("blobs"), blobs()
    tip = page.locator("#tip")
    assert tip.is_hidden()
    lonely = np.argsort([np.sort(((findings.points - spot) ** 2).sum(1))[1] for spot in findings.points])[-3:]
    for row in lonely.tolist():
        page.mouse.move(*locate(page, row))
        shown = tip.inner_text()
        cluster = findings.labels[row]
        assert f"row {row}" in shown
        assert f"Cluster {cluster}" in shown
        assert findings.features is not None
        assert findings.classes is not None
        values = re.findall(r"width\s+(−?[\d.]+)", shown)
        assert float(values[0].replace("−", "-")) == pytest.approx(findings.features[row, 0], rel=1e-3)
        assert re.search(rf"Class\s+{findings.classes[row]}", shown)
    page.mouse.move(5, 5)
    assert tip.is_hidden()


def test_hovering_shows_the_picture(visit: Open) -> None:
    page = visit("images")
    page.mouse.move(*locate(page, 7))
    thumb = page.locator("#tip .thumb")
    assert thumb.bounding_box()["width"] > 40
    assert "data:image/jpeg" in thumb.evaluate("node => getComputedStyle(node).backgroundImage")
    assert page.locator(".profile .thumb").first.bounding_box()["height"] > 20


def test_hostile_names_are_shown_as_they_are(visit: Open) -> None:
    page = visit("hostile")
    page.mouse.move(*locate(page, 3))
    assert "</script><img src=x onerror=alert(1)>" in page.locator("#tip").inner_text()
    assert page.locator("img").count() == 0


def test_no_name_or_value_runs_or_asks_for_anything(visit: Open) -> None:
    """The fixture fails if anything is asked for or refused by the policy: nothing was even tried."""
    page = visit("payloads")
    for row in range(len(PAYLOADS)):
        page.mouse.move(*locate(page, row))
    page.locator("input[value='class']").check()
    for button in page.locator(".clusters [data-pick]").all():
        button.click()
    page.locator("#training .plot").first.hover()
    page.locator("[data-copy]").click()
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, iframe, form, base, object, meta[http-equiv=refresh]").count() == 0


def test_markup_that_was_added_to_a_page_cannot_act(browser: Any, folder: Path, tmp_path: Path) -> None:
    """The policy stops what escaping would have let through."""
    added = (
        "<script>window.hacked = 1</script><img src=x: onerror=window.hacked=2><style>body{opacity:0.5}</style>"
        "<base href='https://example.org/'><form action='https://example.org/f' id=f></form><a id=a href=page>a</a>"
        "<iframe src='https://example.org/i'></iframe><img src='https://example.org/p'>"
    )
    changed = tmp_path / "changed.html"
    text = (folder / "blobs.html").read_text(encoding="utf-8")
    changed.write_text(text.replace("<body>", f"<body>{added}", 1), encoding="utf-8")
    context = browser.new_context(offline=True)
    page, sent = context.new_page(), []
    # What the policy refuses is announced as a request, and never sent.
    page.on("requestfailed", lambda request: sent.append((request.url, request.failure)))
    page.on("requestfinished", lambda request: sent.append((request.url, "")))
    page.goto(changed.as_uri())
    page.evaluate("document.getElementById('f').submit()")
    page.evaluate(TWO_FRAMES)
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("getComputedStyle(document.body).opacity") == "1"
    assert page.evaluate("document.getElementById('a').href").startswith("file:")
    assert [(url, why) for url, why in sent if url.startswith("http") and why != "csp"] == []
    assert page.evaluate("pollux.state().picked") == -1
    context.close()


def test_picking_a_cluster_marks_and_filters_everything(visit: Open) -> None:
    page = visit("blobs")
    before = pixels(page)
    button = page.locator(".clusters [data-pick='1']")
    button.click()
    assert page.locator("[data-pick='1'][aria-pressed='true']").count() == 3
    assert page.locator("[aria-pressed='true']").count() == 3
    assert pixels(page) != before
    assert page.evaluate("pollux.state().picked") == 1
    assert [page.locator(f".profile[data-cluster='{k}']").is_visible() for k in range(3)] == [False, True, False]
    assert page.locator(".spread path.own:visible").count() == 2
    assert page.locator(".uncertain tbody tr:visible").count() == 10
    assert page.locator(".uncertain tbody tr[data-cluster='1']:visible").count() == 10
    assert page.locator("#picked-name").inner_text() == "Cluster 1"
    page.locator("[data-step='1']").click()
    assert page.locator("#picked-name").inner_text() == "Cluster 2"
    # Samples of other clusters are not hovered.
    row = int(np.flatnonzero(blobs().labels == 0)[0])
    page.mouse.move(*locate(page, row))
    assert page.locator("#tip").is_hidden() or "Cluster 2" in page.locator("#tip").inner_text()
    page.keyboard.press("Escape")
    page.mouse.move(5, 5)
    assert page.locator("[aria-pressed='true']").count() == 0
    assert page.locator("#picked").is_hidden()
    assert pixels(page) == before


def test_members_are_searched_and_downloaded(visit: Open) -> None:
    page = visit("blobs")
    listed = page.locator("#listed tr")
    assert listed.count() == 200
    assert "300 samples, of which the first 200" in page.locator("#found").inner_text()
    page.locator("#search").fill("row 12")
    assert [text.split("\t")[0] for text in listed.all_inner_texts()] == ["row 12", *(f"row 12{j}" for j in range(10))]
    with page.expect_download() as waiting:
        page.locator("#download").click()
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert lines[0] == "row,name,cluster,cluster_name,probability"
    assert len(lines) == 12
    assert lines[1].startswith('12,"row 12",')
    # A picked cluster is listed alone.
    page.locator("#search").fill("")
    page.locator(".picks [data-pick='1']").click()
    sizes = page.evaluate("JSON.parse(document.getElementById('data').textContent).sizes")
    assert listed.count() == min(200, sizes[1])


def test_the_other_map_is_a_click_away(visit: Open) -> None:
    page = visit("maps", reduced_motion="reduce")
    assert page.locator("[data-map='0']").is_visible()
    before, place = pixels(page), locate(page, 3)
    page.locator("input[name='map'][value='1']").check()
    assert page.evaluate("pollux.state().map") == 1
    assert "principal component 1" in page.locator("#map-note").inner_text()
    assert locate(page, 3) != place
    page.mouse.move(*locate(page, 3))
    wait_until(page, "pollux.state().hovered >= 0")
    page.mouse.move(5, 5)
    page.locator("input[name='map'][value='0']").check()
    assert locate(page, 3) == place
    assert pixels(page) == before
    # Where it moves, it arrives.
    page = visit("maps")
    before = locate(page, 3)
    page.locator("input[name='map'][value='1']").check()
    assert page.evaluate("pollux.state().map") == 1
    wait_until(page, f"Math.hypot(pollux.locate(3)[0] - {before[0]}, pollux.locate(3)[1] - {before[1]}) > 1")


def test_a_node_of_the_tree_picks_all_below_it(visit: Open) -> None:
    page, sizes = visit("tree"), blobs(n=600, K=6, used=6).sizes
    before = pixels(page)
    page.locator(".node").nth(2).click()
    assert page.evaluate("pollux.state().group") == [0, 1, 2, 3]
    assert page.evaluate("pollux.state().marked") == sizes[:4].sum()
    assert page.locator(".profile:visible").count() == 4
    assert page.locator("#picked-name").inner_text() == "Clusters 0, 1, 2, 3"
    page.keyboard.press("Escape")
    assert pixels(page) == before
    page.locator("input[value='group']").check()
    assert pixels(page) != before
    # Groups of a layer are picked as nodes are.
    page.locator("[data-legend='group'] button").first.click()
    assert len(page.evaluate("pollux.state().group")) > 1
    assert overflow(visit("tree", width=360, height=740)) <= 0


def test_names_are_those_of_larger_groups_until_the_map_is_zoomed_in(visit: Open) -> None:
    page = visit("regions")
    out = page.evaluate("pollux.state()")
    assert out["layer"] == "group"
    assert {name for name, *_ in out["written"]} == {"north", "south", "west", "east"}
    page.locator("canvas").scroll_into_view_if_needed()
    page.mouse.move(*page.evaluate("pollux.locate(9)"))
    for _ in range(4):
        page.mouse.wheel(0, -300)
    wait_until(page, "pollux.state().layer === 'cluster' && pollux.state().written.length > 0")
    near = page.evaluate("pollux.state()")
    assert all(name.startswith("the long name of a cluster") for name, *_ in near["written"])
    for written in (out["written"], near["written"]):
        for i, (_, x, y, width, height) in enumerate(written):
            for _, other_x, other_y, other_width, other_height in written[:i]:
                apart = abs(x - other_x) >= (width + other_width) / 2 - 2
                assert apart or abs(y - other_y) >= (height + other_height) / 2 - 2
    # What is picked is named as a cluster at any zoom.
    page.click(".zoom [data-zoom=reset]")
    page.click("[data-legend=cluster] [data-pick='3']")
    wait_until(page, "String(pollux.state().written.map(([name]) => name)) === 'the long name of a cluster, 3'")


def test_long_names_on_the_map_keep_the_value(visit: Open) -> None:
    written = sorted(name for name, *_ in visit("parties").evaluate("pollux.state().written"))
    ends = "ment is Federalist", "ment is Republican", "ppointment is Whig"
    assert written == [f"Political Affil…{end}" for end in ends]


def test_columns_are_called_the_same_on_a_narrow_screen(visit: Open) -> None:
    page = visit("blobs", width=360)
    name = page.evaluate("getComputedStyle(document.querySelector('.clusters .sure'), '::before').content")
    assert name.strip('"').strip() == page.locator(".clusters th").nth(2).text_content()


def test_a_word_or_a_row_is_found_on_the_map(visit: Open) -> None:
    page = visit("blobs")
    before = pixels(page)
    page.locator(".find input").fill("row 12")
    assert page.evaluate("pollux.state().marked") == 11
    assert page.locator("#found-on-map").inner_text() == "11 samples"
    assert page.locator("#listed tr").count() == 11
    assert pixels(page) != before
    page.locator(".find input").fill("299")
    assert page.evaluate("pollux.state().marked") == 1
    page.locator("#search").fill("")
    assert page.evaluate("pollux.state().marked") == 300
    assert pixels(page) == before


def test_a_click_on_a_dot_picks_its_cluster(visit: Open) -> None:
    page, row = visit("blobs"), 5
    page.mouse.click(*locate(page, row))
    assert page.evaluate("pollux.state().picked") == blobs().labels[row]


def test_colours_and_legend_follow_the_choice(visit: Open) -> None:
    page = visit("blobs")
    seen = {pixels(page)}
    for mode in ("confidence", "entropy", "class"):
        page.locator(f"input[value='{mode}']").check()
        seen.add(pixels(page))
        assert page.locator("[data-legend]:visible").get_attribute("data-legend") == mode
    assert len(seen) == 4


def test_the_map_moves_by_wheel_drag_and_button(visit: Open) -> None:
    page = visit("blobs", reduced_motion="reduce")
    state = "pollux.state()"
    x, y = locate(page, 0)
    page.mouse.move(x, y)
    page.mouse.wheel(0, -400)
    wait_until(page, "pollux.state().zoom > 1.2")
    # The place below the pointer stays where it is.
    assert locate(page, 0) == pytest.approx((x, y), abs=1)
    page.mouse.down()
    page.mouse.move(x + 60, y + 30, steps=4)
    page.mouse.up()
    assert locate(page, 0) == pytest.approx((x + 60, y + 30), abs=1)
    assert page.evaluate(state)["picked"] == -1
    page.locator(".zoom [data-zoom='reset']").click()
    assert page.evaluate(state)["zoom"] == pytest.approx(1)
    page.locator("[data-zoom='in']").click()
    assert page.evaluate(state)["zoom"] == pytest.approx(1.5)
    page.mouse.dblclick(x + 2, y + 2)
    wait_until(page, "Math.abs(pollux.state().zoom - 1) < 1e-9")


def test_the_first_view_fits_the_bulk_and_everything_is_a_step_away(visit: Open) -> None:
    page = visit("far", reduced_motion="reduce")
    note, button = page.locator("#map-beyond"), page.locator("#map-beyond button")
    assert "5 of 300 samples lie outside the first view" in note.inner_text()
    box = page.locator("#map canvas").bounding_box()
    apart = np.ptp(page.evaluate("[...Array(300).keys()].slice(5).map(pollux.locate)"), axis=0)
    assert apart[0] > 0.3 * box["width"]
    assert apart[1] > 0.5 * box["height"]
    assert not page.evaluate("pollux.state().everything")

    def all_within() -> bool:
        page.evaluate(TWO_FRAMES)
        within: bool = page.evaluate(
            """() => {
                const box = document.querySelector("#map canvas").getBoundingClientRect();
                return [...Array(300).keys()].map(pollux.locate).every(
                    ([x, y]) => x > box.left && x < box.right && y > box.top && y < box.bottom);
            }"""
        )
        return within

    corner = page.locator(".zoom [data-zoom='reset']")
    assert not all_within()
    for way in (button.click, corner.click, lambda: page.locator("#map canvas").press("0")):
        assert (button.inner_text(), corner.get_attribute("title")) == ("Show everything", "Show everything")
        way()
        assert all_within()
        assert button.inner_text() == corner.get_attribute("aria-label") == "Back to the first view"
        page.set_viewport_size({"width": 900, "height": 800})
        assert all_within()
        page.set_viewport_size({"width": 1200, "height": 850})
        way()
        assert page.evaluate("pollux.state().zoom") == pytest.approx(1)
    # From anywhere else the way leads to everything first; out there samples answer as well.
    page.locator("[data-zoom='in']").click()
    page.locator("#map canvas").dblclick(position={"x": 300, "y": 12})
    assert all_within()
    page.mouse.move(*locate(page, 0))
    assert "row 0" in page.locator("#tip").inner_text()
    # Nothing is said of it where the first view is everything.
    assert visit("blobs").locator("#map-beyond").is_hidden()


def test_paper_shows_the_first_view(visit: Open) -> None:
    page = visit("far")
    page.emulate_media(media="print")
    page.evaluate(TWO_FRAMES)
    assert page.locator("#map-beyond").is_visible()
    assert page.locator("#map-beyond button").is_hidden()
    assert page.evaluate("pollux.state().zoom") == 1


def test_a_class_that_is_not_known_is_grey_and_not_named(visit: Open) -> None:
    page = visit("far", reduced_motion="reduce")
    page.locator("input[value='class']").check()
    assert page.locator("[data-legend='class'] li").all_inner_texts() == ["a", "c", "not known"]
    chip = "document.querySelector('[data-class=\"2\"]')"
    assert page.evaluate(f"getComputedStyle({chip}).backgroundColor") == "rgb(179, 188, 198)"
    points = blobs().points
    lonely = np.argsort([np.sort(((points - spot) ** 2).sum(1))[1] for spot in points])
    for row in [row for row in lonely.tolist() if row >= 5 and row % 3 < 2][-4:]:
        page.mouse.move(*locate(page, row))
        shown = page.locator("#tip").inner_text()
        assert f"row {row}" in shown
        assert ("Class" in shown) == (row % 3 == 0)


def test_a_sample_shows_the_shares_it_has(visit: Open) -> None:
    page = visit("shares")
    points = blobs().points
    lonely = np.argsort([np.sort(((points - spot) ** 2).sum(1))[1] for spot in points])[-4:]
    for row in lonely.tolist():
        page.mouse.move(*locate(page, row))
        shown = page.locator("#tip").inner_text()
        assert re.search(rf"town\s+{['Bonn', 'Köln', 'x=y'][row % 3]}\s", shown + "\n")
        assert shown.count("town") == 1
        assert all(name in shown for name in ("width", "height", "depth"))


def test_no_text_is_cut_off_on_paper(visit: Open) -> None:
    for name in ("far", "images", "shares", "tree"):
        page = visit(name, width=760)
        page.emulate_media(media="print")
        page.evaluate(TWO_FRAMES)
        assert overflow(page) <= 0
        cut = page.evaluate(
            """() => [...document.querySelectorAll("main *, header *")].filter(
                (node) => node.offsetParent && getComputedStyle(node).overflow !== "visible"
                    && !node.closest(".unseen, .needs-script canvas") && !(node instanceof SVGElement)
                    && (node.scrollWidth > node.clientWidth + 1 || node.scrollHeight > node.clientHeight + 1)
            ).map((node) => node.className + ": " + node.textContent.slice(0, 40))"""
        )
        assert cut == []


def test_everything_can_be_done_with_the_keyboard(visit: Open) -> None:
    page = visit("blobs", reduced_motion="reduce")
    focused = []
    for _ in range(40):
        page.keyboard.press("Tab")
        kind = page.evaluate(
            "(() => { const at = document.activeElement; return at.dataset.pick ? 'pick' : at.dataset.zoom ? 'zoom' :"
            " at.name === 'colour' ? 'colour' : at.tagName.toLowerCase(); })()"
        )
        focused.append(kind)
        if kind == "canvas":
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            page.keyboard.press("+")
            page.keyboard.press("+")
            assert page.evaluate("pollux.state().zoom") == pytest.approx(2.25)
            middle = page.evaluate("pollux.state().x")
            page.keyboard.press("ArrowRight")
            assert page.evaluate("pollux.state().x") > middle
            page.keyboard.press("-")
            page.keyboard.press("0")
            assert page.evaluate("pollux.state().zoom") == pytest.approx(1)
        if kind == "pick":
            break
    assert {"a", "colour", "canvas", "zoom", "pick"} <= set(focused)
    page.keyboard.press("Enter")
    assert page.locator(":focus").get_attribute("aria-pressed") == "true"
    assert "picked" in page.locator("#said").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(":focus").get_attribute("aria-pressed") == "false"


def test_curves_are_read_at_the_pointer(visit: Open) -> None:
    page = visit("blobs")
    plot = page.locator("[data-curve='objective'] .plot")
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    assert page.locator("[data-curve='objective'] output").inner_text() == "1 at epoch 50"
    page.mouse.move(box["x"] + 1, box["y"] + 20)
    assert page.locator("[data-curve='clusters'] output").inner_text() == "5 at epoch 1"


def test_the_dark_setting_is_followed(visit: Open) -> None:
    page = visit("blobs", color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark, drawn = page.evaluate(background), pixels(page)
    assert dark == "rgb(20, 24, 29)"
    page.emulate_media(color_scheme="light")
    wait_until(page, f"{background} === 'rgb(255, 255, 255)'")
    assert pixels(page) != drawn


@pytest.mark.parametrize("width", [360, 800])
@pytest.mark.parametrize("name", ["blobs", "images", "long", "hostile"])
def test_nothing_is_wider_than_the_screen(visit: Open, name: str, width: int) -> None:
    page = visit(name, width=width, height=740)
    assert overflow(page) <= 0
    page.locator(".picks [data-pick='0']").click()
    page.mouse.move(*locate(page, int(np.flatnonzero(blobs().labels == 0)[4])))
    assert page.locator("#tip").is_visible()
    assert overflow(page) <= 0


def test_paper_is_light_and_has_no_controls(visit: Open) -> None:
    page = visit("blobs", color_scheme="dark")
    page.locator(".picks [data-pick='1']").click()
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator(".controls:visible").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".profile:visible").count() == 3
    # Of a small copy, because the browser complains of who reads a canvas that it draws on again and again.
    corner = """(() => {
        const copy = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
        copy.drawImage(document.querySelector("#map canvas"), 3, 3, 1, 1, 0, 0, 1, 1);
        return copy.getImageData(0, 0, 1, 1).data[0];
    })()"""
    wait_until(page, f"{corner} > 200")
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    # The dots of the map; nothing else of this page is a picture.
    assert b"/Subtype /Image" in paper


def test_tables_are_read_without_javascript(visit: Open) -> None:
    page = visit("blobs", java_script_enabled=False)
    assert page.locator(".clusters tbody tr:visible").count() == 3
    assert page.locator(".scores").is_visible()
    assert page.locator(".settings").is_visible()
    assert page.locator(".profile:visible").count() == 3
    assert page.locator("#map canvas").is_hidden()
    assert "needs JavaScript" in page.locator("#map noscript").inner_text()


def test_fifty_thousand_samples_stay_fluid(visit: Open) -> None:
    page = visit("many")
    x, y = locate(page, 0)
    page.mouse.move(x, y)
    frames = page.evaluate(
        """async ([x, y]) => {
            const canvas = document.querySelector("#map canvas");
            const times = [];
            for (let i = 0, last = null; i < 16; i++) {
                const turn = { deltaY: i < 8 ? -80 : 80, clientX: x, clientY: y, cancelable: true };
                canvas.dispatchEvent(new WheelEvent("wheel", turn));
                const now = await new Promise(requestAnimationFrame);
                if (last !== null) times.push(now - last);
                last = now;
            }
            return times;
        }""",
        [x, y],
    )
    assert float(np.median(frames)) < 100
    page.mouse.move(x + 1, y)
    wait_until(page, "pollux.state().hovered >= 0")
    assert page.locator("#tip").is_visible()
