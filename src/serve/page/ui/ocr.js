// Pictures in a row, the text beside each. They are read as soon as they come, several at once.
const TASKS = [
  ["text", "OCR:"], ["table", "Table Recognition:"], ["formula", "Formula Recognition:"], ["chart", "Chart Recognition:"],
  ["spotting", "Spotting:"], ["seal", "Seal Recognition:"],
];
const ocr = { cards: [], running: 0 };

const promptOf = (task) => TASKS.find(([name]) => name === task)?.[1] ?? ($("ocr-own").value.trim() || t("ocr.ownDefault"));

function fillTasks(select, chosen) {
  clear(select);
  for (const name of [...TASKS.map(([task]) => task), "own"]) {
    select.append(el("option", { value: name, "data-t": "ocr." + name }, t("ocr." + name)));
  }
  select.value = chosen;
}

// Cells of a table as PaddleOCR-VL says them: <fcel>text, <ecel> empty, <lcel> continues to the left, <ucel> upwards, <xcel>
// both, <nl> ends the row. Null for any other text.
function tableOf(text) {
  if (!/<nl>|<fcel>/.test(text)) return null;
  const body = el("tbody"), above = [];
  for (const line of text.trim().replace(/(<nl>\s*)+$/, "").split("<nl>")) {
    const row = body.appendChild(el("tr"));
    let left = null, column = 0;
    for (const [, kind, said] of line.matchAll(/<(fcel|ecel|lcel|ucel|xcel)>([^<]*(?:<(?!(?:fcel|ecel|lcel|ucel|xcel)>)[^<]*)*)/g)) {
      const upper = above[column];
      if (kind === "lcel" && left) left.colSpan++;
      else if (kind === "ucel" && upper) {
        if (left !== upper) upper.rowSpan++;
        left = upper;
      } else if (kind !== "xcel") {
        left = row.appendChild(el("td", {}, said.trim()));
      }
      above[column++] = left;
    }
  }
  return el("div", { class: "tablebox" }, el("table", {}, body));
}

class OcrCard {
  constructor(picture, task) {
    this.picture = picture;
    this.text = "";
    this.state = "waiting";  // reading, done, failed, stopped
    this.select = el("select", { "aria-label": t("ocr.task"), onchange: () => this.again() });
    fillTasks(this.select, task);
    this.out = el("pre", { class: "text", tabindex: "0" });
    this.said = this.out.appendChild(document.createTextNode(""));
    this.problem = el("div", { class: "error", role: "alert", hidden: true });
    this.sheet = el("div", { class: "sheet", hidden: true });
    this.note = el("span", { class: "state" });
    this.view = iconButton("scan", "ocr.asTable", () => this.show(this.sheet.hidden), { hidden: true });
    const shot = el("button", { class: "shot", type: "button", title: picture.name, onclick: () => enlarge(picture) }, pictureNode(picture));
    this.node = el("article", { class: "card", "aria-label": picture.name }, shot,
      el("div", { class: "side" },
        el("div", { class: "top" }, el("b", { title: picture.name }, picture.name), this.select,
          iconButton("close", "remove", () => this.remove())),
        this.problem, this.out, this.sheet,
        el("div", { class: "foot" }, this.note, this.view, iconButton("again", "again", () => this.again()),
          iconButton("copy", "copy", () => copyText(this.text)),
          iconButton("save", "save", () => saveText(this.picture.name.replace(/\.\w+$/, "") + ".txt", this.text)))));
  }

  again() {
    this.controller?.abort();
    this.controller = null;
    this.state = "waiting";
    pump();
  }

  remove() {
    this.controller?.abort();
    ocr.cards = ocr.cards.filter((card) => card !== this);
    this.node.remove();
    dropPicture(this.picture);
    pump();
  }

  // The text, or its table.
  show(sheet) {
    const table = sheet ? tableOf(this.text) : null;
    this.sheet.hidden = table === null;
    this.out.hidden = table !== null;
    clear(this.sheet);
    if (table !== null) this.sheet.append(table);
    this.view.hidden = tableOf(this.text) === null;
    this.view.dataset.tTitle = table === null ? "ocr.asTable" : "ocr.asText";
    this.view.title = t(this.view.dataset.tTitle);
    this.view.classList.toggle("on", table !== null);
  }

  async read() {
    const controller = (this.controller = new AbortController());
    this.state = "reading";
    this.text = this.said.data = "";
    this.problem.hidden = true;
    this.show(false);
    this.out.classList.add("busy");
    delete this.out.dataset.empty;
    this.tell();
    let fresh = "", frame = 0;
    const flush = () => {
      frame = 0;
      this.said.appendData(fresh);
      fresh = "";
    };
    try {
      const url = await pictureData(this.picture);
      const body = {
        model: config.model, temperature: 0, stream: true, stream_options: { include_usage: true },
        messages: [{ role: "user", content: [{ type: "image_url", image_url: { url } }, { type: "text", text: promptOf(this.select.value) }] }],
      };
      this.stats = await streamChat(body, controller.signal, (piece) => {
        if (this.controller !== controller) return;
        this.text += piece.content;
        fresh += piece.content;
        if (frame === 0) frame = requestAnimationFrame(flush);
      });
      if (this.controller === controller) this.state = "done";
    } catch (error) {
      if (this.controller !== controller) return;
      this.state = error.name === "AbortError" ? "stopped" : "failed";
      if (this.state === "failed") {
        this.problem.textContent = error.message;
        this.problem.hidden = false;
      }
    } finally {
      cancelAnimationFrame(frame);
      if (this.controller === controller || this.state !== "reading") this.out.classList.remove("busy");
    }
    if (this.controller !== controller) return;
    this.controller = null;
    flush();
    if (this.state === "done" && this.text === "") this.out.dataset.empty = t("ocr.empty");
    this.show(this.state === "done" && this.select.value === "table");
    this.tell();
  }

  tell() {
    const stats = this.stats;
    this.note.textContent = this.state === "waiting" ? t("ocr.waiting") : this.state === "reading" ? t("ocr.reading")
      : this.state === "done" ? t("ocr.stats", { tokens: count(stats.usage?.completion_tokens ?? 0), time: seconds(stats.seconds) })
        + (stats.finish === "length" ? " · " + t("chat.limit") : "")
      : this.state === "stopped" ? t("chat.stopped") : "";
  }
}

// Starts as many readings as may run at once.
function pump() {
  const most = Number($("ocr-parallel").value);
  for (const card of ocr.cards) {
    if (card.state !== "waiting") continue;
    if (ocr.running >= most) {
      card.tell();
      continue;
    }
    ocr.running++;
    card.read().finally(() => {
      ocr.running--;
      pump();
    });
  }
  const done = ocr.cards.filter((card) => card.state === "done").length;
  const open = ocr.cards.some((card) => card.state === "waiting" || card.state === "reading");
  $("ocr-state").textContent = ocr.cards.length === 0 ? "" : t("ocr.progress", { done, all: ocr.cards.length });
  $("ocr-stop").hidden = !open;
  $("ocr-add").classList.toggle("small", ocr.cards.length > 0);
  for (const id of ["ocr-copy", "ocr-save"]) $(id).disabled = done === 0;
  $("ocr-clear").disabled = ocr.cards.length === 0;
}

function addToOcr(files) {
  for (const picture of takePictures(files)) {
    const card = new OcrCard(picture, $("ocr-task").value);
    ocr.cards.push(card);
    $("ocr-cards").append(card.node);
  }
  pump();
}

// All texts, each below the name of its picture where there are several.
function allTexts() {
  const done = ocr.cards.filter((card) => card.state === "done");
  if (done.length === 1) return done[0].text + "\n";
  return done.map((card) => "# " + card.picture.name + "\n\n" + card.text + "\n").join("\n");
}

function showOcrConfig() {
  const pictures = config === null || config.images > 0;
  $("ocr-inner").hidden = !pictures;
  $("ocr-none").hidden = pictures;
  const own = config !== null && pictures && !config.architecture.startsWith("PaddleOCR");
  fillTasks($("ocr-task"), own ? "own" : "text");
  $("ocr-own-label").hidden = !own;
  $("ocr-own").placeholder = t("ocr.ownDefault");
}

function setupOcr() {
  $("ocr-add").onclick = () => $("files").click();
  $("ocr-task").onchange = () => {
    $("ocr-own-label").hidden = $("ocr-task").value !== "own";
    for (const card of ocr.cards) {
      if (card.state === "waiting") card.select.value = $("ocr-task").value;
    }
  };
  $("ocr-parallel").onchange = pump;
  $("ocr-stop").onclick = () => {
    for (const card of ocr.cards) {
      if (card.state === "waiting") card.state = "stopped";
      card.controller?.abort();
      card.tell();
    }
    pump();
  };
  $("ocr-copy").onclick = () => copyText(allTexts());
  $("ocr-save").onclick = () => saveText("ocr.txt", allTexts());
  $("ocr-clear").onclick = () => {
    for (const card of [...ocr.cards]) card.remove();
  };
}
