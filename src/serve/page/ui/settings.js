// What a request says besides its messages, and the request as a line for the shell.
const NUMBERS = ["temperature", "top_p", "max_tokens", "seed"];

// The tools of the settings, or null; the field says what is wrong with them.
function settingTools() {
  const text = $("set-tools").value.trim(), wrong = $("set-tools-wrong");
  wrong.hidden = true;
  if (text === "") return null;
  try {
    const tools = JSON.parse(text);
    if (Array.isArray(tools)) return tools;
    throw new Error("[…]");
  } catch (error) {
    wrong.textContent = t("set.toolsWrong", { why: error.message });
    wrong.hidden = false;
    return null;
  }
}

// The body of a chat request over wire messages.
function requestBody(messages) {
  const system = $("set-system").value;
  const body = {
    model: config?.model ?? "default",
    messages: system.trim() === "" ? messages : [{ role: "system", content: system }, ...messages],
    stream: true,
    stream_options: { include_usage: true },
  };
  for (const name of NUMBERS) {
    const field = $("set-" + name);
    if (field.value !== "" && field.validity.valid) body[name] = Number(field.value);
  }
  const thinking = $("set-thinking").value;
  if (thinking !== "") body.chat_template_kwargs = { enable_thinking: thinking === "true" };
  const tools = settingTools();
  if (tools !== null && tools.length > 0) body.tools = tools;
  return body;
}

const quoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

// `shorten`: pictures are named, not written out.
function curlText(body, shorten) {
  const shown = (name, value) =>
    shorten && typeof value === "string" && value.startsWith("data:") && value.length > 100
      ? value.slice(0, 40) + "… (" + bytes(value.length) + ")" : value;
  return "curl -N " + quoted(new URL("v1/chat/completions", document.baseURI).href) + " \\\n" +
    "  -H 'Content-Type: application/json' \\\n" +
    (key === "" ? "" : "  -H \"Authorization: Bearer $TERN_API_KEY\" \\\n") +
    "  -d @- <<'END_OF_BODY'\n" + JSON.stringify(body, shown, 2) + "\nEND_OF_BODY\n";
}

// What Send would send now.
const currentBody = async () => requestBody(await wireMessages(chat.turns, draftTurn()));

let curlTurn = 0;
async function showCurl() {
  if ($("settings").hidden) return;
  const turn = ++curlTurn;
  const body = await currentBody();
  if (turn === curlTurn) $("curl").textContent = curlText(body, true);
}

const KEYS = [
  [["Alt+1", "2", "3"], "keys.tabs"], [["/"], "keys.focus"], [["Esc"], "keys.stop"], [["↑"], "keys.last"], [["Alt+N"], "keys.new"],
];

function showKeys() {
  clear($("keys-list"));
  for (const [keys, words] of KEYS) {
    const names = keys.flatMap((name) => [el("kbd", {}, name), " "]);
    $("keys-list").append(el("dt", {}, ...names), el("dd", {}, t(words)));
  }
}

function openSettings(open) {
  $("settings").hidden = !open;
  $("settings-button").setAttribute("aria-expanded", String(open));
  $("settings-button").classList.toggle("on", open);
  if (open) {
    showCurl();
    $("settings-close").focus();
  } else {
    $("settings-button").focus();
  }
}

function setupSettings() {
  $("settings-button").onclick = () => openSettings($("settings").hidden);
  $("settings-close").onclick = () => openSettings(false);
  $("settings").addEventListener("input", showCurl);
  $("curl-copy").onclick = async () => copyText(curlText(await currentBody(), false));
}
