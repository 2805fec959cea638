"""The chat of the page, by hand and keyboard."""

import json
import subprocess

import pytest
from tern_server import ROOT, wait_for

DONE = "chat.busy === null && chat.turns.at(-1)?.role === 'assistant'"
SAID = "document.querySelector('.msg.bot:last-of-type .md:not(.body)')?.innerText"
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln", "days": 3}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
ANSWERS = [
    {"match": "sunny", "text": "It is **sunny**."},
    {"match": "weather", "text": "<think>which tool?</think>Let me look.\n" + CALL},
    {
        "match": "list",
        "text": "<think>short</think># Two\n\n1. `one`\n   - a\n2. two\n\n|x|y|\n|---|--:|\n|1|2|\n\n```sh\nls <b>\n```",
    },
    {"match": "slow", "text": "<think></think>" + "word " * 900, "token_delay_ms": 40},
    {"match": "again", "text": "<think></think>Second answer."},
    {"match": "2", "text": "<think></think>Two pictures' text."},
    {"match": "", "text": "<think></think>First answer."},
]


@pytest.fixture(scope="module")
def server(scripted):
    flags = ("--reasoning-parser", "qwen3", "--tool-call-parser", "hermes", "--limit-mm-per-prompt", '{"image": 2}')
    return scripted(ANSWERS, *flags)


def say(page, text):
    page.js("document.getElementById('draft').focus()")
    page.type(text)
    page.key("Enter")


def ask(page, text):
    say(page, text)
    page.wait(DONE)


def test_an_answer_with_thoughts_and_markdown(server, page, pictures):
    p = page(server.url)
    p.picture(pictures / "hello.png")
    p.type("Make a list")  # the field has the focus from the start
    p.key("Enter", modifiers=8, text="\r")
    assert p.js("chat.turns.length") == 0, "Shift+Enter starts a line"
    p.key("Enter")
    p.wait(DONE)
    assert p.js("chat.turns[0].text") == "Make a list\n"
    bot = "document.querySelector('.msg.bot')"
    assert p.js(bot + ".querySelector('details.think').open") is False
    assert p.js(bot + ".querySelector('details.think .body').textContent") == "short"
    shape = p.js("[...document.querySelectorAll('.msg.bot .md:not(.body) *')].map((node) => node.localName).join(' ')")
    expected = "h3 ol li code ul li li div table thead tr th th tbody tr td td div div span button svg use pre code"
    assert shape == expected
    assert p.js(bot + ".querySelector('pre code').textContent") == "ls <b>"
    assert "tokens/s" in p.text(".msg.bot .stats")
    p.click(".msg.bot summary")
    assert p.js(bot + ".querySelector('details.think').open") is True
    p.picture(pictures / "chat.png")


def test_stop_edit_and_ask_again(server, page):
    p = page(server.url)
    say(p, "slow please")
    p.wait("chat.busy !== null && chat.turns.at(-1).text.length > 10")
    assert p.js("document.getElementById('send').title") == "Stop (Esc)"
    wait_for(lambda: server.metric("fastdeploy:num_requests_running") == 1)
    p.click("#send")
    p.wait(DONE)
    wait_for(lambda: server.metric("fastdeploy:num_requests_running") == 0)
    assert p.js(SAID).startswith("word word") and "stopped" in p.text(".msg.bot .stats")
    p.js("document.getElementById('draft').focus()")
    p.key("ArrowUp")  # in the empty message: the last one again
    p.wait("document.querySelector('.editbox textarea') === document.activeElement")
    p.js("document.activeElement.select()")
    p.type("hello")
    p.key("Enter")
    p.wait(DONE)
    assert p.js("chat.turns.map((turn) => turn.text)") == ["hello", "First answer."]
    ask(p, "again")
    p.js("document.querySelector('.msg.bot [data-t-title=\"chat.retry\"]').click()")
    p.wait(DONE + " && chat.turns.length === 2")
    assert p.js("chat.turns.map((turn) => turn.text)") == ["hello", "First answer."], "what came after is gone"
    assert p.js("document.querySelectorAll('.msg').length") == 2
    say(p, "slow please")
    p.wait("chat.busy !== null && chat.turns.at(-1).text.length > 10")
    p.key("n", code="KeyN", modifiers=1)  # leaves the answer, too
    p.wait("chat.turns.length === 0 && chat.busy === null")
    wait_for(lambda: server.metric("fastdeploy:num_requests_running") == 0)


def test_calls_of_tools_and_their_results(server, page, pictures):
    p = page(server.url)
    p.click("#settings-button")
    p.js("document.getElementById('set-tools').focus()")
    p.type("[{")
    p.wait("!document.getElementById('set-tools-wrong').hidden")
    p.js("document.activeElement.select()")
    p.type(json.dumps(TOOLS))
    p.wait("document.getElementById('set-tools-wrong').hidden")
    ask(p, "the weather?")
    assert p.text(".call .title") == "Calls weather"
    assert json.loads(p.text(".call pre")) == {"city": "Köln", "days": 3}
    assert p.js("document.querySelector('.think .body').textContent") == "which tool?"
    p.js("document.querySelector('.call textarea').focus()")
    p.type("sunny")
    p.picture(pictures / "tools.png")
    p.js("[...document.querySelectorAll('.msg.bot .main')].at(-1).click()")
    p.wait(DONE + " && chat.turns.length === 4")
    assert p.js("[...document.querySelectorAll('.msg.bot strong')].at(-1).textContent") == "sunny"


def test_curl_says_the_same(server, page):
    p = page(server.url)
    p.click("#settings-button")
    p.js("document.getElementById('set-temperature').value = '0.5'")
    p.js("document.getElementById('set-system').value = \"You're kind; $HOME `x`\"")
    p.js("document.getElementById('draft').focus()")
    p.type("it's again")
    shown = p.wait("document.getElementById('curl').textContent.includes('again') && document.getElementById('curl').textContent")
    body = json.loads(shown.partition("<<'END_OF_BODY'\n")[2].partition("\nEND_OF_BODY")[0])
    assert body["temperature"] == 0.5 and "seed" not in body and "Authorization" not in shown
    said = "You're kind; $HOME `x`"
    assert body["messages"] == [{"role": "system", "content": said}, {"role": "user", "content": "it's again"}]
    done = subprocess.run(["bash", "-c", shown], check=False, capture_output=True, text=True, timeout=60)
    events = [json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("data: {")]
    assert "".join(c["delta"].get("content") or "" for e in events for c in e["choices"]) == "Second answer.", done.stderr


def test_pictures_by_file_paste_and_drop(server, page):
    p = page(server.url)
    demo = ROOT / "models" / "demo.png"
    p.give_files("#files", demo)
    p.wait("chat.pictures.length === 1")
    p.bring_files("paste", "#draft", demo)
    p.wait("chat.pictures.length === 2")
    p.bring_files("drop", "#log", demo)
    p.wait("document.querySelector('.toasts .bad')?.textContent === 'This server takes 2 pictures in one request'")
    assert p.js("chat.pictures.length") == 2
    p.wait("[...document.querySelectorAll('#draft-pictures img')].every((image) => image.naturalWidth > 0)")
    p.click("#settings-button")
    p.wait("document.getElementById('curl').textContent.includes('data:image/png;base64,')")
    assert len(p.text("#curl")) < 3000, "long data is shortened"
    copied = p.js("(async () => curlText(await currentBody(), false))()")
    assert len(copied) > demo.stat().st_size
    ask(p, "these 2")
    wire = p.js("(async () => (await wireMessages(chat.turns))[0].content)()")
    assert [part["type"] for part in wire] == ["image_url", "image_url", "text"]
    assert p.js(SAID) == "Two pictures' text."
    assert p.js("document.querySelectorAll('.bubble .thumb img').length") == 2
    p.click(".bubble .thumb .open")
    assert p.js("document.getElementById('picture-dialog').open") is True
    p.key("Escape")
    p.wait("!document.getElementById('picture-dialog').open")


def test_errors_are_shown_and_can_be_tried_again(server, page):
    p = page(server.url)
    p.js("(document.getElementById('set-tools').value = '[{\"type\": \"function\"}]')")
    ask(p, "hello")
    assert p.text(".error") not in (None, "", "The server answered with status 400"), "in the server's own words"
    p.js("(document.getElementById('set-tools').value = '')")
    p.js("document.querySelector('.msg.bot [data-t-title=\"chat.retry\"]').click()")
    p.wait(DONE)
    assert p.js(SAID) == "First answer." and p.text(".error") is None
    # What the server refuses is no fault of the page.
    p.browser.events = [e for e in p.browser.events if "400" not in json.dumps(e.get("params", {}).get("entry", ""))]
