"""Chromium without a window, driven by the DevTools protocol over its pipe: no driver, no port, no package. Chromium itself is
not installed by tools/setup.sh (220 MB and what it needs); where it is missing, tests that want it skip with a line."""

import base64
import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import time

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium():
    named = os.environ.get("CHROMIUM")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, program, folder):
        self.folder = pathlib.Path(folder)
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.errors = open(self.folder / "chromium.txt", "wb")  # noqa: SIM115 - closed by end()
        # The protocol is spoken on descriptors 3 and 4, which the shell puts there.
        command = f'exec 3<&{theirs_in} 4>&{theirs_out} && exec "$@"'
        flags = ["--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.folder / 'profile'}", "--no-first-run"]
        flags += ["--disable-gpu", "--hide-scrollbars", "--disable-background-networking", "--disable-component-update"]
        flags += ["--disable-default-apps", "--disable-sync", "--disable-dev-shm-usage", "--lang=en-US", "--no-proxy-server"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")  # its sandbox does not work for root
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", program, *flags, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=self.errors,
            stderr=self.errors,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.read_end, self.write_end, self.rest = ours_in, ours_out, b""
        self.number, self.events = 0, []

    def send(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_end, data) :]
        return self.number

    def receive(self, deadline):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
            piece = os.read(self.read_end, 1 << 20) if ready else b""
            if not piece:
                said = (self.folder / "chromium.txt").read_text(errors="replace")[-2000:]
                raise TimeoutError(f"Chromium {'has ended' if ready else 'does not answer'}:\n{said}")
            self.rest += piece
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def call(self, method, session=None, seconds=60, **parameters):
        number, deadline = self.send(method, session, **parameters), time.monotonic() + seconds
        while True:
            message = self.receive(deadline)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if "method" in message:
                self.events.append(message)

    def page(self, **size):
        return Page(self, **size)

    def end(self):
        with contextlib.suppress(OSError, TimeoutError):
            self.send("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        os.close(self.read_end)
        os.close(self.write_end)
        self.errors.close()


class Page:
    """A tab of its own, with storage of its own."""

    def __init__(self, browser, width=1280, height=800, phone=False, dark=False, language="en-US"):
        self.browser = browser
        self.context = browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            self.call(domain + ".enable")
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setLocaleOverride", locale=language)
        agent = self.js("navigator.userAgent")
        self.call("Network.setUserAgentOverride", userAgent=agent, acceptLanguage=language)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return self

    def js(self, expression, **values):
        """The value of an expression; `values` are names in it. A promise is waited for."""
        names = ", ".join(values)
        given = ", ".join(json.dumps(value) for value in values.values())
        done = self.call(
            "Runtime.evaluate",
            expression=f"(({names}) => ({expression}))({given})" if values else expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in done:
            raise RuntimeError(json.dumps(done["exceptionDetails"])[:2000])
        return done["result"].get("value")

    def wait(self, expression, seconds=30, **values):
        deadline = time.monotonic() + seconds
        while not (value := self.js(expression, **values)):
            assert time.monotonic() < deadline, f"{seconds} s have passed: {expression}"
            time.sleep(0.02)
        return value

    def text(self, selector):
        return self.js("document.querySelector(selector)?.innerText", selector=selector)

    def click(self, selector):
        """As a pointer does it: what lies above the middle of the node gets the click."""
        spot = self.js(
            "(() => { const node = document.querySelector(selector); node.scrollIntoView({block: 'nearest'});"
            " const box = node.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()",
            selector=selector,
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=spot[0], y=spot[1], button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code=None, text=None, modifiers=0):
        """modifiers: 1 Alt, 2 Control, 8 Shift."""
        numbers = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowRight": 39, "ArrowLeft": 37, "ArrowUp": 38, " ": 32}
        event = {"key": name, "code": code or name, "modifiers": modifiers}
        event["windowsVirtualKeyCode"] = numbers.get(name, ord(name[0].upper()))
        said = text if text is not None else {"Enter": "\r", " ": " "}.get(name)
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": said} if said else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def give_files(self, selector, *paths):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(path) for path in paths])

    def bring_files(self, event, selector, *paths):
        """Files by 'drop' or 'paste', as events that carry them."""
        files = [[pathlib.Path(p).name, base64.b64encode(pathlib.Path(p).read_bytes()).decode()] for p in paths]
        self.js(
            "(() => { const data = new DataTransfer();"
            " for (const [name, text] of files) data.items.add(new File("
            "[Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, {type: 'image/png'}));"
            " const made = {bubbles: true, cancelable: true};"
            " document.querySelector(selector).dispatchEvent(event === 'paste'"
            " ? new ClipboardEvent('paste', {...made, clipboardData: data})"
            " : new DragEvent(event, {...made, dataTransfer: data})); })()",
            files=files,
            selector=selector,
            event=event,
        )

    def picture(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def seen(self, method):
        """Parameters of the events of this page by that name so far."""
        self.js("0")  # what has happened before this is here now
        return [e["params"] for e in self.browser.events if e.get("sessionId") == self.session and e["method"] == method]

    def problems(self):
        """What the console and the policy have complained about."""
        entries = [e["entry"] for e in self.seen("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")]
        thrown = self.seen("Runtime.exceptionThrown")
        return [e["text"] for e in entries] + [json.dumps(e["exceptionDetails"])[:1000] for e in thrown]

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
