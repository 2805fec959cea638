// How turns of a conversation look.

// What a user said, with a way to say it otherwise.
function userView(turn) {
  const node = el("article", { class: "msg user", "aria-label": t("chat.you") });
  const bubble = el("div", { class: "bubble" });
  if (turn.pictures.length > 0) bubble.append(el("div", { class: "thumbs" }, ...turn.pictures.map((picture) => thumb(picture))));
  if (turn.text !== "") bubble.append(el("div", { class: "said" }, turn.text));
  const acts = el("div", { class: "acts" },
    iconButton("edit", "chat.edit", () => editTurn(turn)),
    iconButton("copy", "copy", () => copyText(turn.text)));
  node.append(bubble, acts);
  turn.node = node;
  return node;
}

// The user's turn as a field; sending it drops all that came after.
function editTurn(turn) {
  if (chat.busy) return;
  const area = el("textarea", { rows: "2", "aria-label": t("chat.edit") });
  area.value = turn.text;
  const back = () => {
    const again = userView(turn);
    editor.replaceWith(again);
    $("draft").focus();
  };
  let pictures = turn.pictures;
  const send = () => {
    if (area.value.trim() === "" && pictures.length === 0) return;
    turn.text = area.value;
    turn.pictures = pictures;
    back();
    cutAfter(turn);
    answer();
  };
  const box = el("div", { class: "editbox" });
  if (turn.pictures.length > 0) {
    const thumbs = el("div", { class: "thumbs" });
    for (const picture of turn.pictures) {
      thumbs.append(thumb(picture, (node) => {
        pictures = pictures.filter((other) => other !== picture);
        node.remove();
      }));
    }
    box.append(thumbs);
  }
  box.append(area, el("div", { class: "row" },
    el("button", { class: "plain", type: "button", onclick: back, "data-t": "cancel" }, t("cancel")),
    el("button", { class: "main", type: "button", onclick: send, "data-t": "chat.send" }, t("chat.send"))));
  const editor = el("article", { class: "msg user editing" }, box);
  area.addEventListener("input", () => growArea(area));
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      back();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  turn.node.replaceWith(editor);
  turn.node = editor;
  growArea(area);
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}

const prettyJson = (text) => {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
};

// An answer while it comes and afterwards. Pieces are shown once a frame, however many have come.
class AnswerView {
  constructor(turn) {
    this.turn = turn;
    this.caret = el("span", { class: "caret" });
    this.node = el("article", { class: "msg bot", "aria-label": t("chat.model") }, this.caret);
    this.waiting = { content: "", reasoning: "" };
    this.frame = 0;
    this.begin = performance.now();
    this.thoughtTime = 0;
  }

  push(piece) {
    this.turn.text += piece.content;
    this.turn.reasoning += piece.reasoning;
    this.waiting.content += piece.content;
    this.waiting.reasoning += piece.reasoning;
    if (piece.reasoning !== "") this.thoughtTime = (performance.now() - this.begin) / 1000;
    for (const part of piece.calls) this.addCall(part);
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.show());
  }

  addCall(part) {
    const calls = this.turn.calls;
    let call = calls.find((other) => other.index === part.index);
    if (call === undefined) calls.push((call = { index: part.index, id: "", name: "", text: "", node: null }));
    call.id ||= part.id ?? "";
    call.name ||= part.function?.name ?? "";
    call.text += part.function?.arguments ?? "";
  }

  show() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const follow = atEnd();
    this.showThoughts();
    if (this.waiting.content !== "") {
      if (this.markdown === undefined) {
        this.text = el("div", { class: "md" });
        this.node.insertBefore(this.text, this.caret);
        this.markdown = new Markdown(this.text);
      }
      this.markdown.push(this.waiting.content);
      this.waiting.content = "";
    }
    for (const call of this.turn.calls) this.showCall(call);
    scrollOn(follow);
  }

  showThoughts() {
    if (this.waiting.reasoning !== "") {
      if (this.thoughts === undefined) {
        this.summary = el("summary", {}, t("chat.thinking"));
        this.body = el("div", { class: "body md" });
        this.thoughts = el("details", { class: "think busy" }, this.summary, this.body);
        this.node.prepend(this.thoughts);
        this.thoughtMarkdown = new Markdown(this.body);
      }
      this.thoughtMarkdown.push(this.waiting.reasoning);
      this.waiting.reasoning = "";
    }
    if (this.thoughts && (this.turn.text !== "" || this.turn.calls.length > 0 || this.ended)) {
      this.thoughts.classList.remove("busy");
      this.summary.textContent = t("chat.thought", { time: seconds(this.thoughtTime) });
    }
  }

  showCall(call) {
    if (call.node === null) {
      call.title = el("span");
      call.code = el("pre", { tabindex: "0" });
      call.node = el("div", { class: "call" }, el("div", { class: "title" }, icon("tool"), call.title), call.code);
      this.node.insertBefore(call.node, this.caret);
    }
    call.title.textContent = t("chat.call", { name: call.name });
    call.code.textContent = this.ended ? prettyJson(call.text) : call.text;
  }

  // The answer is over: `stats` of streamChat, or an error, or neither where the user has stopped it.
  end(stats, error) {
    this.ended = true;
    this.show();
    this.caret.remove();
    const turn = this.turn;
    if (error) this.node.append(el("div", { class: "error", role: "alert" }, error));
    if (turn.calls.length > 0 && stats) this.node.append(this.resultForm());
    const line = [];
    if (stats?.finish === "length") line.push(t("chat.limit"));
    if (!stats && !error) line.push(t("chat.stopped"));
    if (stats?.usage && stats.first !== null) {
      const tokens = stats.usage.completion_tokens, rest = stats.seconds - stats.first;
      // An answer that came as one piece has a rate only as a whole.
      const rate = tokens > 1 && rest > 0.05 ? (tokens - 1) / rest : tokens / stats.seconds;
      line.push(t("chat.stats", { tokens: count(tokens), rate: short(rate), first: seconds(stats.first) }));
    }
    this.node.append(el("div", { class: "acts" },
      iconButton("copy", "copy", () => copyText(turn.text)),
      iconButton("again", "chat.retry", () => retryTurn(turn)),
      el("span", { class: "stats" }, line.join(" · "))));
    scrollOn(atEnd(160));
  }

  // A field for the result of each call; all of them go back together.
  resultForm() {
    const fields = this.turn.calls.map((call) => {
      const area = el("textarea", { rows: "2", class: "code" });
      call.node.append(el("label", {}, el("span", { "data-t": "chat.result" }, t("chat.result")), area));
      return area;
    });
    const send = el("button", { class: "main", type: "button", "data-t": "chat.giveResults" }, t("chat.giveResults"));
    send.onclick = () => {
      if (chat.busy) return;
      cutAfter(this.turn);
      this.turn.calls.forEach((call, i) => chat.turns.push({ role: "tool", id: call.id, text: fields[i].value }));
      answer();
    };
    return el("div", { class: "row" }, send);
  }
}
