// Markdown to nodes, as it arrives: each whole line is read once, the last, unfinished one is shown as if it ended here and
// taken back when more comes. Only the elements below are ever made, and they get nothing but text: no links, no pictures,
// no HTML. Time is linear in the text.
const LONG_LINE = 4000;     // characters; a longer line is plain text
const LONG_PIECE = 32768;   // of a long line in one node, so that the browser lays out what is new
const DEEPEST = 4;          // emphasis within emphasis, lists within lists: 2 * DEEPEST

function inlineTo(parent, text, depth = 0) {
  let plain = 0;
  const missing = new Set();  // closing marks that are not in the rest of the text
  const find = (mark, from) => {
    if (missing.has(mark)) return -1;
    const at = text.indexOf(mark, from);
    if (at < 0) missing.add(mark);
    return at;
  };
  const put = (from, to, node, next) => {
    if (from > plain) parent.append(text.slice(plain, from));
    parent.append(node);
    plain = next;
    return next;
  };
  for (let i = 0; i < text.length;) {
    const c = text[i];
    if (c === "`") {
      let n = 1;
      while (text[i + n] === "`") n++;
      const mark = "`".repeat(n), end = find(mark, i + n);
      if (end < 0) { i += n; continue; }
      i = put(i, end, el("code", {}, text.slice(i + n, end)), end + n);
    } else if ((c === "*" || c === "~") && depth < DEEPEST) {
      const mark = text[i + 1] === c ? c + c : c;
      const inside = i + mark.length;
      const opens = !/[\s*~]/.test(text[inside] ?? " ") && !(mark === "*" && /\w/.test(text[i - 1] ?? " "));
      const end = !opens || mark === "~" ? -1 : find(mark, inside + 1);
      if (end < 0 || /\s/.test(text[end - 1])) { i += mark.length; continue; }
      const node = el(mark === "**" ? "strong" : mark === "*" ? "em" : "del");
      inlineTo(node, text.slice(inside, end), depth + 1);
      i = put(i, end, node, end + mark.length);
    } else {
      i++;
    }
  }
  if (plain < text.length) parent.append(text.slice(plain));
}

const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
const SEPARATOR = /^\s*\|?(\s*:?-+:?\s*\|)+(\s*:?-+:?\s*)?$/;

class Markdown {
  constructor(root) {
    this.root = root;
    this.line = "";
    this.tail = [];     // nodes of the unfinished line
    this.trial = false;
    this.long = null;   // {node, size, shown}: the line that is too long to read
    this.state = { block: null, lists: [], fence: null };
  }

  // More of the text.
  push(text) {
    this.undo();
    let from = 0;
    for (let end; (end = text.indexOf("\n", from)) >= 0; from = end + 1) {
      this.line += text.slice(from, end);
      this.endLine();
    }
    this.line += text.slice(from);
    if (this.line.length > LONG_LINE) return this.showLong();
    if (this.line === "") return;
    this.saved = { ...this.state, lists: this.state.lists.slice() };
    this.trial = true;
    this.take(this.line);
    this.trial = false;
  }

  undo() {
    if (this.saved === undefined) return;
    for (const node of this.tail.reverse()) node.remove();
    this.tail = [];
    this.state = this.saved;
    this.saved = undefined;
  }

  add(parent, node) {
    parent.append(node);
    if (this.trial) this.tail.push(node);
    return node;
  }

  endLine() {
    if (this.line.length > LONG_LINE) {
      this.showLong();
      this.long = null;
      this.state.block = null;
    } else {
      this.take(this.line.endsWith("\r") ? this.line.slice(0, -1) : this.line);
    }
    this.line = "";
  }

  showLong() {
    this.long ??= { node: null, size: 0, shown: 0 };
    const long = this.long, fence = this.state.fence;
    while (long.shown < this.line.length) {
      if (long.node === null || long.size >= LONG_PIECE) {
        const home = fence ? this.add(fence.code, el("span")) : this.add(this.root, el("div", { class: "long" }));
        long.node = home.appendChild(document.createTextNode(fence?.text && long.shown === 0 ? "\n" : ""));
        long.size = 0;
      }
      const piece = this.line.slice(long.shown, long.shown + LONG_PIECE - long.size);
      long.node.appendData(piece);
      long.size += piece.length;
      long.shown += piece.length;
    }
    if (fence) this.state.fence = { ...fence, text: true };
  }

  take(line) {
    const s = this.state;
    if (s.fence) return this.takeCode(line);
    if (/^\s*$/.test(line)) {
      s.block = null;
      return;
    }
    let m;
    if ((m = /^(\s*)(`{3,}|~{3,})\s*([\w+#.-]*)[^`]*$/.exec(line))) return this.openFence(m[1].length, m[2], m[3]);
    if ((m = /^(#{1,6})\s+(.*)$/.exec(line))) {
      s.lists = [];
      s.block = null;
      return inlineTo(this.add(this.root, el("h" + Math.min(5, m[1].length + 2))), m[2].replace(/\s+#+$/, ""));
    }
    if (/^\s{0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) {
      s.lists = [];
      s.block = null;
      return this.add(this.root, el("hr"));
    }
    if ((m = /^(\s*)([-*+]|(\d{1,9})[.)])\s+(.*)$/.exec(line))) return this.takeItem(m[1].length, m[3], m[4]);
    if ((m = /^\s{0,3}>\s?(.*)$/.exec(line))) return this.takeInto("quote", m[1], () => this.add(this.root, el("blockquote")));
    if (/^\s*\|.*\|\s*$/.test(line) || s.block?.kind === "row" || s.block?.kind === "table") {
      if (this.takeRow(line)) return;
    }
    if (s.lists.length > 0 && (s.block !== null || /^\s/.test(line))) {
      const item = s.lists[s.lists.length - 1].item;
      return this.takeInto("item", line.trim(), () => this.add(item, el("p")));
    }
    s.lists = [];
    this.takeInto("text", line, () => this.add(this.root, el("p")));
  }

  // A line into the block of that kind which is open, or a new one.
  takeInto(kind, text, make) {
    const s = this.state;
    const goes = s.block?.kind === kind;
    if (!goes) s.block = { kind, node: make(), line: text };
    const span = document.createDocumentFragment();
    inlineTo(span, goes ? "\n" + text : text);
    for (const node of [...span.childNodes]) this.add(s.block.node, node);
  }

  takeItem(indent, number, text) {
    const s = this.state;
    while (s.lists.length > 0 && indent < s.lists[s.lists.length - 1].indent) s.lists = s.lists.slice(0, -1);
    let top = s.lists[s.lists.length - 1];
    const tag = number === undefined ? "ul" : "ol";
    const deeper = top !== undefined && indent >= top.indent + 2 && s.lists.length < 2 * DEEPEST;
    if (top === undefined || deeper || top.list.localName !== tag) {
      if (top !== undefined && !deeper) s.lists = s.lists.slice(0, -1);
      const home = deeper ? top.item : s.lists[s.lists.length - 1]?.item ?? this.root;
      const list = this.add(home, el(tag, number === undefined ? {} : { start: number }));
      top = { list, indent, item: null };
      s.lists = [...s.lists, top];
    }
    const item = this.add(top.list, el("li"));
    s.lists = [...s.lists.slice(0, -1), { ...top, item }];
    s.block = { kind: "item", node: item, line: text };
    inlineTo(item, text);
  }

  // False: this is no row of a table.
  takeRow(line) {
    const s = this.state, row = line.includes("|");
    if (s.block?.kind === "row" && SEPARATOR.test(line)) {
      if (this.trial) return true;
      const head = el("tr"), right = cellsOf(line).map((cell) => cell.endsWith(":"));
      cellsOf(s.block.line).forEach((cell, i) => inlineTo(head.appendChild(el("th", { class: right[i] && "num" })), cell));
      const body = el("tbody");
      s.block.node.replaceWith(el("div", { class: "tablebox" }, el("table", {}, el("thead", {}, head), body)));
      s.block = { kind: "table", node: body, line: "", right };
      return true;
    }
    if (s.block?.kind === "table" && row) {
      const tr = this.add(s.block.node, el("tr"));
      cellsOf(line).forEach((cell, i) => inlineTo(tr.appendChild(el("td", { class: s.block.right[i] && "num" })), cell));
      return true;
    }
    if (s.block?.kind === "row") s.block = { ...s.block, kind: "text" };
    if (s.block?.kind === "table") s.block = null;
    if (!row || s.block !== null || !/^\s*\|/.test(line)) return false;
    s.lists = [];
    s.block = { kind: "row", node: this.add(this.root, el("p")), line };
    inlineTo(s.block.node, line);
    return true;
  }

  openFence(indent, mark, language) {
    const s = this.state, code = el("code");
    const copy = iconButton("copy", "copy", () => copyText(code.textContent));
    const home = s.lists[s.lists.length - 1]?.item;
    const box = el("div", { class: "codebox" }, el("div", {}, el("span", {}, language), copy), el("pre", { tabindex: "0" }, code));
    this.add(indent >= 2 && home ? home : this.root, box);
    if (!(indent >= 2)) s.lists = [];
    s.block = null;
    s.fence = { code, mark, indent, text: false };
  }

  takeCode(line) {
    const s = this.state, fence = s.fence;
    const end = line.trim();
    if (end.startsWith(fence.mark) && end === fence.mark[0].repeat(end.length)) {
      s.fence = null;
      return;
    }
    let from = 0;
    while (from < fence.indent && line[from] === " ") from++;
    this.add(fence.code, document.createTextNode((fence.text ? "\n" : "") + line.slice(from)));
    if (!fence.text) s.fence = { ...fence, text: true };
  }
}
