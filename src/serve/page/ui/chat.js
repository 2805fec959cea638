// The conversation: its turns, the draft, one answer at a time.
const chat = { turns: [], pictures: [], busy: null };

const draftTurn = () => ({ role: "user", text: $("draft").value, pictures: chat.pictures });

const log = () => $("log");
const atEnd = (slack = 60) => log().scrollHeight - log().scrollTop - log().clientHeight < slack;
function scrollOn(follow) {
  if (follow) log().scrollTop = log().scrollHeight;
  $("latest").hidden = atEnd(160);
}

// Turns as messages of a request. `draft`: a turn that is not said yet, left out while it is empty.
async function wireMessages(turns, draft) {
  const messages = [];
  const said = draft && (draft.text.trim() !== "" || draft.pictures.length > 0) ? [...turns, draft] : turns;
  for (const turn of said) {
    if (turn.role === "user") {
      if (turn.pictures.length === 0) {
        messages.push({ role: "user", content: turn.text });
        continue;
      }
      const parts = [];
      for (const picture of turn.pictures) parts.push({ type: "image_url", image_url: { url: await pictureData(picture) } });
      if (turn.text !== "") parts.push({ type: "text", text: turn.text });
      messages.push({ role: "user", content: parts });
    } else if (turn.role === "tool") {
      messages.push({ role: "tool", tool_call_id: turn.id, content: turn.text });
    } else if (turn.text !== "" || turn.calls.length > 0) {
      const message = { role: "assistant", content: turn.text };
      if (turn.calls.length > 0) {
        message.tool_calls = turn.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.text } }));
      }
      messages.push(message);
    }
  }
  return messages;
}

// Drops the turns behind `turn`, and their pictures.
function cutAfter(turn) {
  for (const gone of chat.turns.splice(chat.turns.indexOf(turn) + 1)) {
    gone.node?.remove();
    gone.pictures?.forEach(dropPicture);
  }
}

function retryTurn(turn) {
  if (chat.busy) return;
  const at = chat.turns.indexOf(turn);
  if (at < 1) return;
  cutAfter(chat.turns[at - 1]);
  answer();
}

function setBusy(controller) {
  chat.busy = controller;
  const button = $("send");
  button.classList.toggle("stop", controller !== null);
  setIcon(button, controller === null ? "send" : "stop");
  button.dataset.tTitle = controller === null ? "chat.send" : "chat.stop";
  button.title = t(button.dataset.tTitle);
  button.setAttribute("aria-label", button.title);
  showDraft();
}

// What readers of screens are told; eyes see it while `seen`.
function tellChat(text, seen) {
  $("chat-state").textContent = text;
  $("chat-state").classList.toggle("quiet", !seen);
}

// Asks the model to go on after the last turn.
async function answer() {
  const controller = new AbortController();
  const turn = { role: "assistant", text: "", reasoning: "", calls: [], node: null };
  const view = new AnswerView(turn);
  turn.node = view.node;
  setBusy(controller);
  tellChat(t("chat.busy"), true);
  $("hello").hidden = true;
  $("thread").append(view.node);
  scrollOn(true);
  let stats = null, error = null;
  try {
    const body = requestBody(await wireMessages(chat.turns));
    chat.turns.push(turn);
    stats = await streamChat(body, controller.signal, (piece) => view.push(piece));
  } catch (problem) {
    if (problem.name !== "AbortError") error = problem.message;
  }
  if (chat.busy !== controller) return;  // the conversation was left meanwhile
  if (!chat.turns.includes(turn)) chat.turns.push(turn);
  view.end(stats, error);
  setBusy(null);
  tellChat(error || !stats ? "" : t("chat.done"), false);
  showCurl();
}

function say() {
  const turn = draftTurn();
  if (chat.busy || (turn.text.trim() === "" && turn.pictures.length === 0)) return;
  chat.turns.push(turn);
  $("thread").append(userView(turn));
  $("draft").value = "";
  chat.pictures = [];
  showDraft();
  answer();
}

function newChat() {
  chat.busy?.abort();
  setBusy(null);
  for (const turn of chat.turns) turn.pictures?.forEach(dropPicture);
  chat.turns = [];
  clear($("thread"));
  $("hello").hidden = false;
  $("latest").hidden = true;
  tellChat("", false);
  showCurl();
  $("draft").focus();
}

function showDraft() {
  growArea($("draft"));
  $("send").disabled = chat.busy === null && $("draft").value.trim() === "" && chat.pictures.length === 0;
  const box = $("draft-pictures");
  box.hidden = chat.pictures.length === 0;
  clear(box);
  for (const picture of chat.pictures) {
    box.append(thumb(picture, () => {
      chat.pictures = chat.pictures.filter((other) => other !== picture);
      dropPicture(picture);
      showDraft();
      $("draft").focus();
    }));
  }
  showCurl();
}

function addToDraft(files) {
  const added = takePictures(files);
  const room = config.images - chat.pictures.length;
  if (added.length > room) {
    toast(t("pic.many", { n: config.images }), true);
    added.splice(Math.max(room, 0)).forEach(dropPicture);
  }
  chat.pictures.push(...added);
  showDraft();
  $("draft").focus();
}

function showChips() {
  clear($("chips"));
  const chip = (words, act) => $("chips").append(el("button", { type: "button", onclick: act }, t(words)));
  if (config?.images > 0) chip("chip.read", () => $("files").click());
  for (const words of ["chip.sum", "chip.explain", "chip.poem"]) {
    chip(words, () => {
      $("draft").value = t(words);
      say();
    });
  }
}

// What depends on the server: pictures, tools, its name.
function showChatConfig() {
  const pictures = config?.images > 0;
  $("attach").hidden = !pictures;
  $("no-pictures").hidden = config === null || pictures;
  $("no-tools").hidden = config === null || config.tools;
  $("hello-line").dataset.t = pictures ? "hello.vision" : "hello.text";
  $("hello-line").textContent = t($("hello-line").dataset.t);
  const name = config?.model ?? "";
  $("model").textContent = name.split("/").filter((part) => part !== "").pop() ?? "";
  $("model").title = config === null ? "" : name + " · Tern " + config.version;
  showChips();
}

function setupChat() {
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    if (chat.busy) chat.busy.abort();
    else say();
    if (matchMedia("(pointer: fine)").matches) $("draft").focus();  // on a phone its keyboard would come up
  });
  const draft = $("draft");
  draft.addEventListener("input", () => {
    growArea(draft);
    $("send").disabled = chat.busy === null && draft.value.trim() === "" && chat.pictures.length === 0;
    showCurl();
  });
  draft.addEventListener("keydown", (event) => {
    if (event.isComposing) return;  // Enter chooses a word of an input method
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      if (!chat.busy) say();
    } else if (event.key === "ArrowUp" && draft.value === "" && !chat.busy) {
      const last = chat.turns.findLast((turn) => turn.role === "user");
      if (last === undefined) return;
      event.preventDefault();
      editTurn(last);
    }
  });
  $("attach").onclick = () => $("files").click();
  $("new-chat").onclick = newChat;
  $("latest").onclick = () => scrollOn(true);
  log().addEventListener("scroll", () => ($("latest").hidden = atEnd(160)), { passive: true });
}
