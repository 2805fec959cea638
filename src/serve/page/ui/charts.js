// Figures over time: a line of the last minutes, its area, and the value under the pointer.
const SAMPLES = 180;
const FEWEST = 60;  // samples that the width stands for at first
const TALL = 100;

class Plot {
  // `format`: a value as text.
  constructor(home, format, lines = 1) {
    this.home = home;
    this.format = format;
    this.area = svg("path", { class: "area" });
    this.lines = Array.from({ length: lines }, (_, i) => svg("path", { class: i === 0 ? "line" : "line b" }));
    this.mark = svg("line", { class: "mark", y1: 0, y2: TALL, visibility: "hidden" });
    this.svg = svg("svg", { class: "plot", preserveAspectRatio: "none", "aria-hidden": "true" },
      this.area, this.mark, ...this.lines.slice().reverse());
    this.tip = el("div", { class: "tip", hidden: true });
    home.append(this.svg, this.tip);
    this.svg.addEventListener("pointermove", (event) => this.point(event.clientX));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.series = [];
  }

  // `series`: arrays of up to SAMPLES values, the newest last; null where nothing was known.
  draw(series) {
    this.series = series;
    const top = Math.max(1e-9, ...series.flat().filter((v) => v !== null)) * 1.12;
    this.wide = Math.max(FEWEST, ...series.map((values) => values.length));
    this.svg.setAttribute("viewBox", `0 0 ${this.wide - 1} ${TALL}`);
    const x = (values, i) => this.wide - values.length + i;
    const path = (values) => {
      let text = "", open = false;
      values.forEach((v, i) => {
        if (v !== null) text += `${open ? "L" : "M"}${x(values, i)} ${(TALL - (v / top) * (TALL - 4)).toFixed(2)}`;
        open = v !== null;
      });
      return text;
    };
    series.forEach((values, i) => this.lines[i].setAttribute("d", path(values)));
    const known = series[0].findIndex((v) => v !== null);
    const filled = known < 0 ? "" : path(series[0].map((v) => v ?? 0)) + `L${this.wide - 1} ${TALL}L${x(series[0], 0)} ${TALL}Z`;
    this.area.setAttribute("d", filled);
  }

  point(clientX) {
    const box = this.svg.getBoundingClientRect();
    const ago = clientX === null ? -1 : Math.round((1 - (clientX - box.left) / box.width) * (this.wide - 1));
    const values = this.series.map((line) => (ago >= 0 ? line[line.length - 1 - ago] : undefined));
    const known = values[0] !== undefined && values[0] !== null;
    this.tip.hidden = !known;
    this.mark.setAttribute("visibility", known ? "visible" : "hidden");
    if (!known) return;
    const at = this.wide - 1 - ago;
    this.mark.setAttribute("x1", at);
    this.mark.setAttribute("x2", at);
    this.tip.textContent = values.map((v) => this.format(v ?? 0)).join(" / ") + " · " + (ago === 0 ? t("met.now") : t("met.ago", { n: ago }));
    const home = this.home.getBoundingClientRect();
    const left = clientX - home.left - this.tip.offsetWidth / 2;
    this.tip.style.left = Math.max(8, Math.min(left, home.width - this.tip.offsetWidth - 8)) + "px";
    this.tip.style.top = box.top - home.top - 26 + "px";
  }
}
