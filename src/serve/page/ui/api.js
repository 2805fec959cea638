// Requests to this server: the key of the tab, errors in words, streams. Paths are relative, so that a proxy may put the
// server below a path of its own.
class Failure extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

let key = "";
try {
  key = sessionStorage.getItem("tern.key") ?? "";
} catch { /* asked for again after a reload */ }

function keepKey(value) {
  key = value;
  try {
    if (value === "") sessionStorage.removeItem("tern.key");
    else sessionStorage.setItem("tern.key", value);
  } catch { /* kept in memory alone */ }
  $("key-button").classList.toggle("on", value !== "");
}

// The dialog, one at a time; all who ask wait for the same answer. True: there is a key now.
let asking = null;
function askKey(wrong) {
  asking ??= new Promise((resolve) => {
    $("key-wrong").hidden = !wrong;
    $("key-forget").hidden = key === "";
    $("key-input").value = "";
    $("key-dialog").showModal();
    $("key-input").focus();
    $("key-dialog").onclose = () => {
      asking = null;
      $("key-input").value = "";
      resolve($("key-dialog").returnValue === "use");
    };
  });
  return asking;
}

function setupKey() {
  keepKey(key);
  const dialog = $("key-dialog");
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const value = $("key-input").value.trim();
    if (value === "" || /[^\x21-\x7e]/.test(value)) {  // what no header can carry is no key
      $("key-wrong").hidden = false;
      return;
    }
    keepKey(value);
    dialog.close("use");
  });
  $("key-cancel").onclick = () => dialog.close("");
  dialog.addEventListener("cancel", () => (dialog.returnValue = ""));
  $("key-forget").onclick = () => {
    keepKey("");
    dialog.close("");
    toast(t("key.forgotten"));
  };
  $("key-button").onclick = async () => {
    if (await askKey(false)) {
      toast(t("key.kept"));
      start();
    }
  };
}

// The words of an error body, whatever its form: {error: {message}}, {error: "..."}, {detail: "..."}.
function errorText(text, status) {
  try {
    const body = JSON.parse(text);
    const said = body.error?.message ?? body.error ?? body.detail ?? body.message;
    if (typeof said === "string" && said !== "") return said;
  } catch { /* no JSON */ }
  return t("err.status", { status });
}

// A response with a good status; asks for the key as often as the server wants another one.
async function call(path, options = {}) {
  for (;;) {
    const used = key;
    const headers = { ...options.headers };
    if (used !== "") headers.Authorization = "Bearer " + used;
    let response;
    try {
      response = await fetch(path, { cache: "no-store", credentials: "omit", ...options, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure(t("err.away"));
    }
    if (response.ok) return response;
    if (response.status !== 401) throw new Failure(errorText(await response.text(), response.status), response.status);
    if (used !== key) continue;  // another request has asked meanwhile
    if (options.quiet || !(await askKey(used !== ""))) throw new Failure(t("err.noKey"), 401);
  }
}

const post = (path, body, signal) =>
  call(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

// The data of server-sent events, parsed, until [DONE].
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure(t("err.broken"));
    }
    if (part.done) throw new Failure(t("err.broken"));
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Failure(errorText(data, event.error.code ?? 500));
      yield event;
    }
  }
}

// Streams one answer: every piece goes to `on` as {content, reasoning, calls}. Returns {finish, usage, first, seconds}.
async function streamChat(body, signal, on) {
  const begin = performance.now();
  const result = { finish: null, usage: null, first: null, seconds: 0 };
  const response = await post("v1/chat/completions", body, signal);
  for await (const event of events(response)) {
    if (event.usage) result.usage = event.usage;
    const choice = event.choices?.[0];
    if (choice === undefined) continue;
    const { content, reasoning_content: reasoning, tool_calls: calls } = choice.delta ?? {};
    if (content || reasoning || calls) {
      result.first ??= (performance.now() - begin) / 1000;
      on({ content: content ?? "", reasoning: reasoning ?? "", calls: calls ?? [] });
    }
    if (choice.finish_reason) result.finish = choice.finish_reason;
  }
  result.seconds = (performance.now() - begin) / 1000;
  return result;
}

// What the server offers; null until it has said so. Whoever wants to know meanwhile waits for the same answer.
let config = null, loading = null;
function loadConfig() {
  loading ??= (async () => {
    try {
      config = await (await call("page/config")).json();
      showChatConfig();
      showOcrConfig();
    } finally {
      loading = null;
    }
  })();
  return loading;
}
