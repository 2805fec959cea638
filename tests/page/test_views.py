"""OCR, metrics, languages, sizes of screens, keys; and the first paint."""

import socket

import pytest
from tern_server import MODEL, ROOT, wait_for

DEMO = ROOT / "models" / "demo.png"
ALL_DONE = "ocr.cards.length > 0 && ocr.cards.every((card) => card.state === 'done' || card.state === 'failed')"


@pytest.fixture(scope="module")
def text_server(scripted, text_model):
    return scripted([{"match": "", "text": "Only text."}], model=text_model)


def test_several_pictures_are_read_at_once(model_server, page, pictures, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    p = page(model_server.url + "/#ocr")
    p.give_files("#files", DEMO, broken, DEMO)
    p.wait(ALL_DONE)
    expected = (ROOT / "models" / "demo.txt").read_text().strip()
    texts = p.js("ocr.cards.map((card) => card.state + ' ' + card.text.trim())")
    assert texts[0] == texts[2] == "done " + expected
    assert texts[1] == "failed " and p.js("ocr.cards[1].problem.textContent") != ""
    assert p.text("#ocr-state") == "2 of 3 read"
    assert p.js("allTexts()") == f"# demo.png\n\n{expected}\n\n# demo.png\n\n{expected}\n"
    p.picture(pictures / "ocr.png")
    p.js("(() => { const select = ocr.cards[0].select; select.value = 'table'; select.dispatchEvent(new Event('change')); })()")
    p.wait(ALL_DONE + " && ocr.cards[0].stats !== undefined")
    p.click("#ocr-clear")
    assert p.js("ocr.cards.length") == 0 and p.js("document.querySelectorAll('.card').length") == 0
    p.browser.events = [e for e in p.browser.events if "400" not in str(e.get("params", {}).get("entry", ""))]


def test_pictures_wait_and_can_be_stopped(scripted, page):
    server = scripted([{"match": "", "text": "word " * 500, "token_delay_ms": 40}])
    p = page(server.url + "/#ocr")
    p.js("(document.getElementById('ocr-parallel').value = '2')")
    p.bring_files("drop", "#view-ocr", DEMO, DEMO, DEMO)
    p.wait("ocr.cards.map((card) => card.state).join() === 'reading,reading,waiting'")
    p.wait("ocr.cards[0].text.length > 0 && ocr.cards[1].text.length > 0")
    p.click("#ocr-stop")
    p.wait("ocr.cards.every((card) => card.state === 'stopped')")
    wait_for(lambda: server.metric("fastdeploy:num_requests_running") == 0)


def test_tables(model_server, page):
    p = page(model_server.url + "/#ocr")
    cells = "<fcel>a<lcel><fcel>b<nl><fcel><i>1<fcel>2<fcel>3<nl><ucel><ecel><fcel>x < y<nl>"
    rows = p.js("[...tableOf(text).querySelectorAll('tr')].map((tr) => [...tr.cells].map((td) => "
                "[td.textContent, td.colSpan, td.rowSpan]))", text=cells)  # fmt: skip
    assert rows == [[["a", 2, 1], ["b", 1, 1]], [["<i>1", 1, 2], ["2", 1, 1], ["3", 1, 1]], [["", 1, 1], ["x < y", 1, 1]]]
    assert p.js("tableOf('plain')") is None
    assert p.js("tableOf(text).querySelectorAll('td').length", text="<ucel><lcel><xcel><nl><fcel>") == 2


def test_figures_move(model_server, page, pictures):
    p = page(model_server.url + "/#metrics")
    p.wait("figures.samples.length > 1")
    before = p.js("figures.samples.at(-1).sums.get('fastdeploy:generation_tokens_total')")
    model_server.client().completions.create(model="default", prompt="1+1=", max_tokens=8, extra_body={"ignore_eos": True})
    p.wait("figures.samples.at(-1).sums.get('fastdeploy:generation_tokens_total') >= n + 8", n=before)
    p.wait("times('fastdeploy:time_to_first_token_seconds') !== null")
    values = p.js("Object.fromEntries([...document.querySelectorAll('.tile')].map((tile) => "
                  "[tile.querySelector('h3 span').dataset.t, tile.querySelector('.value').innerText]))")  # fmt: skip
    assert set(values) == set(p.js("Object.keys(TILES)"))
    assert values["met.ttft"] != "–" and values["met.running"] == "0"
    assert p.js("document.getElementById('met-live').classList.contains('on')")
    p.picture(pictures / "metrics.png")
    p.click("#met-pause")
    assert p.text("#met-state") == "paused"
    number = p.js("figures.samples.length")
    p.click("#tab-chat")
    p.click("#tab-metrics")
    assert p.js("figures.samples.length") == number


def test_quantiles(model_server, page):
    p = page(model_server.url)
    assert p.js("quantile(null, new Map([[1, 10], [2, 30], [Infinity, 40]]), 0.5)") == 1.5
    assert p.js("quantile(new Map([[1, 10], [Infinity, 10]]), new Map([[1, 10], [Infinity, 10]]), 0.5)") is None
    assert p.js("quantile(null, new Map([[1, 0], [Infinity, 4]]), 0.9)") == 1
    text = 'a_total{x="1"} 2.0\na_total{x="2"} 3.0\nh_bucket{le="+Inf"} 4.0\nh_bucket{le="0.5"} 1.0\n# TYPE b\n'
    read = p.js(
        "(() => { const f = readFigures(text); return [f.sums.get('a_total'), f.buckets.get('h').get(Infinity)]; })()", text=text
    )
    assert read == [5, 4]


def test_a_port_of_its_own_for_figures_is_said(launch, page):
    with socket.socket() as free:  # 0 would be that of --port, 0 as well
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    server = launch("--metrics-port", number)
    p = page(server.url + "/#metrics")
    p.wait("!document.getElementById('met-none').hidden")
    assert "--metrics-port" in p.text("#met-none")
    assert p.js("performance.getEntriesByType('resource').every((entry) => !entry.name.endsWith('/metrics'))")


def test_a_model_of_text(text_server, page, pictures):
    p = page(text_server.url)
    assert p.js("document.getElementById('attach').hidden")
    assert p.text("#no-pictures") == "This model reads text only."
    p.bring_files("drop", "#log", DEMO)
    assert p.js("chat.pictures.length") == 0
    assert p.text("#model") == "a-text-model"
    p.click("#tab-ocr")
    assert "text only" in p.text("#ocr-none") and p.js("document.getElementById('ocr-inner').hidden")
    p.picture(pictures / "text-only.png")


def test_chinese_and_english(model_server, page, pictures):
    p = page(model_server.url, language="zh-CN", dark=True)
    assert p.js("document.documentElement.lang") == "zh-CN"
    assert p.text("#tab-metrics") == "指标" and p.text("#hello h1") == "有什么可以帮你？"
    p.picture(pictures / "chinese-dark.png")
    assert p.js("getComputedStyle(document.body).backgroundColor") == "rgb(13, 18, 23)"
    p.click("#language-button")
    assert p.js("document.documentElement.lang") == "en" and p.text("#tab-metrics") == "Metrics"
    p.open(model_server.url + "/?again")
    assert p.text("#tab-metrics") == "Metrics", "remembered"
    for colours in ("light", "dark", "auto"):
        p.click("#theme-button")
        assert p.js("document.documentElement.dataset.colours") == colours
    used = p.js("[...document.querySelectorAll('[data-t], [data-t-title], [data-t-ph], [data-t-label]')].flatMap((node) => "
                "[node.dataset.t, node.dataset.tTitle, node.dataset.tPh, node.dataset.tLabel].filter(Boolean))")  # fmt: skip
    words = p.js("Object.entries(WORDS)")
    assert set(used) <= {name for name, _ in words}
    for name, (english, chinese) in words:
        assert english and chinese and set(english.split("{")[1:]) >= set(), name
        holes = [sorted(part.split("}")[0] for part in text.split("{")[1:]) for text in (english, chinese)]
        assert holes[0] == holes[1], name


@pytest.mark.parametrize("tab", ["chat", "ocr", "metrics"])
def test_phones(model_server, page, pictures, tab):
    p = page(f"{model_server.url}/#{tab}", width=360, height=740, phone=True)
    if tab == "metrics":
        p.wait("figures.samples.length > 0")
    if tab == "ocr":
        p.give_files("#files", DEMO)
        p.wait(ALL_DONE)
    p.picture(pictures / f"phone-{tab}.png")
    wide = "[...document.querySelectorAll('body *')].filter((n) => n.getBoundingClientRect().right > innerWidth + 1 && n.offsetParent)"
    assert p.js("document.documentElement.scrollWidth <= innerWidth")
    assert p.js(wide + ".map((node) => node.id || node.className)") == []
    bar = p.js("document.querySelector('.tabs').getBoundingClientRect().bottom")
    assert bar == p.js("innerHeight"), "the tabs lie at the thumb"
    if tab == "chat":
        p.click("#settings-button")
        assert p.js("document.getElementById('settings').getBoundingClientRect().width") == 360
        p.key("Escape")
        assert p.js("document.getElementById('settings').hidden")


def test_keys(model_server, page):
    p = page(model_server.url)
    p.key("2", code="Digit2", modifiers=1)
    assert p.js("view") == "ocr" and p.js("document.activeElement.id") == "tab-ocr"
    p.key("ArrowRight")
    assert p.js("view") == "metrics" and p.js("document.activeElement.id") == "tab-metrics"
    p.key("ArrowRight")
    assert p.js("view") == "chat"
    p.key("/", code="Slash", text="/")
    assert p.js("document.activeElement.id") == "draft" and p.js("document.activeElement.value") == ""
    reached = []
    for _ in range(12):
        p.key("Tab")
        reached.append(p.js("document.activeElement.id || document.activeElement.className"))
    for id in ("attach", "new-chat", "settings-button"):
        assert id in reached, reached
    unnamed = p.js("[...document.querySelectorAll('button, input, textarea, select')].filter((n) => n.type !== 'file' && "
                   "!(n.getAttribute('aria-label') || n.title || n.innerText || n.textContent.trim() || n.closest('label'))).map((n) => n.id)")  # fmt: skip
    assert unnamed == []
    p.js("document.getElementById('settings-button').focus()")
    p.key("Enter")
    assert not p.js("document.getElementById('settings').hidden")
    p.key("Escape")
    assert p.js("document.getElementById('settings').hidden") and p.js("document.activeElement.id") == "settings-button"


CONTROLS = (
    "[...document.querySelectorAll('button, input, select, textarea, summary, [tabindex=\"0\"]')].filter((node) => !node.disabled"
    " && node.type !== 'file' && node.tabIndex >= 0 && node.checkVisibility())"
)


def reach_all(page):
    """Tabs through everything once; every control that can be seen gets the focus, and shows that it has it."""
    page.js("window.reached = new Set()")
    page.js("document.activeElement.blur()")
    for _ in range(page.js(CONTROLS + ".length") + 8):
        page.key("Tab")
        page.js("window.reached.add(document.activeElement)")
    missed = page.js(CONTROLS + ".filter((node) => !window.reached.has(node)).map((node) => node.outerHTML.slice(0, 120))")
    assert missed == []


def test_every_control_is_reached_by_keyboard(model_server, page):
    p = page(model_server.url)
    p.js("document.getElementById('settings-button').focus()")
    p.key("Enter")
    p.js("document.getElementById('draft').focus()")
    p.type("2+2=")
    p.key("Enter")
    p.wait("chat.busy === null && chat.turns.at(-1)?.role === 'assistant'")
    reach_all(p)
    p.js("document.querySelector('.msg.user .acts button').focus()")
    assert p.wait("getComputedStyle(document.querySelector('.msg.user .acts')).opacity === '1'"), "seen when it has the focus"
    p.key("2", code="Digit2", modifiers=1)
    p.give_files("#files", DEMO)
    p.wait(ALL_DONE)
    reach_all(p)
    p.js("document.querySelector('.card .shot').focus()")
    p.key("Enter")
    p.wait("document.getElementById('picture-dialog').open")
    p.key("Escape")
    p.wait("!document.getElementById('picture-dialog').open && document.activeElement.className === 'shot'")
    p.key("3", code="Digit3", modifiers=1)
    p.wait("figures.samples.length > 0")
    reach_all(p)


def test_the_page_says_when_it_was_painted(model_server, page):
    """When that was; how fast a machine under test is, no test can say."""
    p = page(model_server.url)
    paints = p.wait(
        "performance.getEntriesByType('paint').length === 2 && performance.getEntriesByType('paint').map((e) => [e.name, e.startTime])"
    )
    assert [name for name, _ in paints] == ["first-paint", "first-contentful-paint"]
    print("first paint", paints)
    assert p.js("performance.getEntriesByType('resource').every((e) => e.name.startsWith(location.origin))")
    assert MODEL.name in p.js("document.getElementById('model').title")
