"""What a model says stays text, the key stays in the tab, and nothing is asked of anybody else."""

import urllib.error

import pytest
from stand_in import StandIn

DONE = "chat.busy === null && chat.turns.at(-1)?.role === 'assistant'"
HOSTILE = (
    "<img src=x onerror=\"window.hit='img'\"><script>window.hit='script'</script>\n"
    "<svg onload=\"window.hit='svg'\"><iframe src=\"javascript:window.hit='frame'\"></iframe>\n\n"
    "**<b>bold</b>** [link](javascript:window.hit='link') ![x](http://127.0.0.1:9/x.png) `<i>`\n\n"
    "| <td onclick=hit> | <style>*{display:none}</style> |\n|---|---|\n| </table><script>hit</script> | &lt;b&gt; |\n\n"
    "```html\n</code></pre><script>window.hit='code'</script>\n```\n# <h1>\n> <base href=//evil.example>\n- <form action=//evil.example>\n"
)
# Elements that the page makes of an answer.
MADE = set(
    "h3 h4 h5 p ul ol li code strong em del blockquote hr div table thead tbody tr th td pre span button svg use".split(" ")
)


@pytest.fixture
def stand_in(model_server):
    made = []

    def make(pieces):
        made.append(StandIn(model_server, pieces))
        return made[-1]

    yield make
    for each in made:
        each.end()


def say(page, text):
    page.js("document.getElementById('draft').focus()")
    page.type(text)
    page.key("Enter")


def test_hostile_answers_stay_text(stand_in, page, pictures):
    pieces = [{"reasoning_content": HOSTILE}, *({"content": c} for c in HOSTILE)]
    pieces.append({"tool_calls": [{"index": 0, "id": "a", "function": {"name": HOSTILE, "arguments": HOSTILE}}]})
    server = stand_in(pieces)
    p = page(server.url)
    say(p, HOSTILE)
    p.wait(DONE)
    p.js("document.querySelector('details.think').open = true")
    p.picture(pictures / "hostile.png")
    assert p.js("window.hit") is None
    nodes = p.js("[...document.querySelectorAll('.msg .md *')].map((node) => node.localName)")
    assert set(nodes) <= MADE
    attributes = p.js("[...new Set([...document.querySelectorAll('.msg .md *')].flatMap((n) => n.getAttributeNames()))]")
    assert set(attributes) <= {"class", "type", "title", "aria-label", "aria-hidden", "data-t-title", "tabindex", "href", "start"}
    assert p.js("[...document.querySelectorAll('.msg [href]')].every((node) => node.localName === 'use')")
    assert p.js("document.querySelectorAll('.msg img, .msg script, .msg iframe, .msg a, .msg form, .msg base').length") == 0
    shown = p.js("document.querySelector('.msg.bot .md:not(.body)').textContent")
    for text in ("<img src=x onerror=\"window.hit='img'\">", "<b>bold</b>", "[link](javascript:window.hit='link')", "<i>"):
        assert text in shown
    assert p.js("document.querySelector('.call pre').textContent") == HOSTILE
    assert p.js("document.querySelector('.msg.user .said').textContent") == HOSTILE
    assert set(server.asked) == {"/", "/page/config", "/v1/chat/completions"}


@pytest.mark.parametrize("before", ["", "```\n"])
def test_a_megabyte_without_a_space(stand_in, page, before):
    piece = "<x>&" * 4096
    p = page(stand_in([{"content": before}, *([{"content": piece}] * 64)]).url)
    say(p, "go")
    p.wait(DONE, seconds=120)
    shown = p.js("document.querySelector('.msg.bot .md').textContent.length")
    assert shown == 1 << 20
    assert p.js("document.querySelector('.msg.bot .md').textContent === '<x>&'.repeat(1 << 18)")
    assert p.js("document.documentElement.scrollWidth <= innerWidth"), "it is broken or scrolled, not wider than the page"
    assert p.js("document.querySelectorAll('.msg.bot x').length") == 0
    assert p.js("document.querySelectorAll('.msg.bot .md *').length") < 200


def test_the_policy_holds_what_the_page_does_not_do(model_server, page):
    p = page(model_server.url)
    inline = "(() => { const n = document.createElement('script'); n.text = 'window.hit = 1'; document.body.append(n); })()"
    with pytest.raises(RuntimeError, match="TrustedScript"):
        p.js(inline)
    with pytest.raises(RuntimeError, match="TrustedHTML"):
        p.js("(document.body.innerHTML = '<b>x</b>')")
    assert p.js("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')") == "refused"
    assert p.js("window.hit") is None
    blocked = [text for text in p.problems() if "Content Security Policy" in text or "Trusted" in text]
    assert any("connect-src" in text for text in blocked)
    p.browser.events = [e for e in p.browser.events if e.get("sessionId") != p.session]  # they were wanted


def test_the_key_is_asked_for_and_stays_in_the_tab(launch, page, pictures):
    server = launch("--api-key", "sesame-open")
    assert "sesame" not in server.get("/")
    p = page(server.url, ready="document.getElementById('key-dialog').open")
    p.picture(pictures / "key.png")
    assert p.js("document.activeElement.id") == "key-input"
    p.type("wrong")
    p.key("Enter")
    p.wait("document.getElementById('key-dialog').open && !document.getElementById('key-wrong').hidden")
    p.wait("document.getElementById('key-input').value === ''")
    p.type("sesame-open")
    p.key("Enter")
    p.wait("config !== null && !document.getElementById('key-dialog').open")
    assert p.js("sessionStorage.getItem('tern.key')") == "sesame-open"
    assert p.js("JSON.stringify(localStorage) + document.cookie + location.href").count("sesame") == 0
    assert "sesame" not in p.js("document.documentElement.outerHTML")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        server.get("/v1/models")
    p.click("#tab-metrics")
    p.wait("figures.samples.length > 0")
    p.click("#tab-chat")
    say(p, "2+2=")
    p.wait(DONE + " && chat.turns.at(-1).text !== ''")
    p.open(server.url + "/?again")
    p.wait("config !== null")  # kept over a reload
    p.click("#settings-button")
    curl = p.wait("document.getElementById('curl').textContent")
    assert "sesame" not in curl and "Bearer $TERN_API_KEY" in curl
    other = page(server.url, ready="document.getElementById('key-dialog').open")  # another tab knows nothing
    other.key("Escape")
    other.wait("!document.getElementById('key-dialog').open")
    p.click("#key-button")
    p.click("#key-forget")
    p.wait("sessionStorage.getItem('tern.key') === null")
    for each in (p, other):  # the refusals were wanted
        each.browser.events = [e for e in each.browser.events if e.get("sessionId") != each.session]


def test_nobody_else_is_asked(model_server, page):
    p = page(model_server.url)
    for tab in ("#tab-ocr", "#tab-metrics", "#tab-chat"):
        p.click(tab)
    p.js("new Promise((done) => setTimeout(done, 0))")
    urls = {event["request"]["url"] for event in p.seen("Network.requestWillBeSent")}
    assert urls and all(url.startswith((model_server.url, "data:", "blob:")) for url in urls), urls
    cookies = p.call("Network.getCookies")["cookies"]
    assert cookies == []
