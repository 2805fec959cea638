// /metrics once a second while its view is open and seen: rates from counters, times from histograms.
const EVERY = 1000;   // milliseconds
const WINDOW = 60;    // samples that times are taken over
const figures = { asking: false, samples: [], tiles: {}, timer: 0, paused: false, open: false };

// Prometheus' text: sums of each name over its labels, buckets of histograms, figures by engine.
function readFigures(text) {
  const sums = new Map(), buckets = new Map(), engines = new Map();
  const add = (map, name, value) => map.set(name, (map.get(name) ?? 0) + value);
  const inner = (map, name) => map.get(name) ?? map.set(name, new Map()).get(name);
  for (const line of text.split("\n")) {
    const m = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (m === null) continue;
    const [, name, labels = "", said] = m, value = Number(said);
    const bound = /(?:^|,)le="([^"]*)"/.exec(labels), engine = /(?:^|,)engine="([^"]*)"/.exec(labels);
    const status = /(?:^|,)status_code="(\d+)"/.exec(labels);
    if (bound !== null) add(inner(buckets, name.replace(/_bucket$/, "")), bound[1] === "+Inf" ? Infinity : Number(bound[1]), value);
    else if (engine !== null) inner(engines, name).set(engine[1], value);
    else add(sums, status !== null && Number(status[1]) >= 400 ? name + ":bad" : name, value);
  }
  return { sums, buckets, engines };
}

// The value below which a share of what two readings of a histogram have between them lies; null for nothing.
function quantile(from, to, share) {
  const bounds = [...to.keys()].sort((a, b) => a - b);
  const counts = bounds.map((bound) => to.get(bound) - (from?.get(bound) ?? 0));
  const all = counts[counts.length - 1];
  if (!(all > 0)) return null;
  const wanted = share * all, at = counts.findIndex((n) => n >= wanted);
  const low = at > 0 ? bounds[at - 1] : 0, before = at > 0 ? counts[at - 1] : 0;
  if (bounds[at] === Infinity) return low;
  return low + ((bounds[at] - low) * (wanted - before)) / (counts[at] - before);
}

// Half and 95 % of a time, over the last minute, or since the start where the minute has none.
function times(name) {
  const samples = figures.samples, now = samples[samples.length - 1].buckets.get(name);
  if (now === undefined) return null;
  const then = samples[Math.max(0, samples.length - 1 - WINDOW)].buckets.get(name);
  const recent = samples.length > 1 && quantile(then, now, 0.5) !== null;
  const p50 = quantile(recent ? then : null, now, 0.5);
  return p50 === null ? null : { p50, p95: quantile(recent ? then : null, now, 0.95), recent };
}

// Per second, between the last two samples.
function rate(name) {
  const [a, b] = figures.samples.slice(-2);
  if (b === undefined) return null;
  return Math.max(0, ((b.sums.get(name) ?? 0) - (a.sums.get(name) ?? 0)) / (b.at - a.at));
}

// Per minute, over the last one.
function perMinute(name) {
  const samples = figures.samples, b = samples[samples.length - 1], a = samples[Math.max(0, samples.length - 1 - WINDOW)];
  if (a === b) return null;
  return Math.max(0, (((b.sums.get(name) ?? 0) - (a.sums.get(name) ?? 0)) / (b.at - a.at)) * 60);
}

const gauge = (name) => figures.samples[figures.samples.length - 1].sums.get("fastdeploy:" + name) ?? 0;
const percent = (v) => (v * 100).toFixed(v > 0 && v < 0.1 ? 1 : 0) + " %";
const timesText = (time) => (time === null ? t("met.none") : t("met.p95", { p95: seconds(time.p95) }) + " · " + t(time.recent ? "met.perMinute" : "met.sinceStart"));

// Share of prompt tokens from the cache in the last minute.
function hits() {
  const found = perMinute("fastdeploy:prefix_cache_token_num_total"), all = perMinute("fastdeploy:prompt_tokens_total");
  return all > 0 ? Math.min(1, found / all) : null;
}

// Each tile: what it reads (series for the plot, the first is the value), how it writes it, what stands below.
const time = (name) => ({ read: () => [times(name)?.p50 ?? null], write: seconds, more: () => timesText(times(name)) });
const TILES = {
  "met.rate": {
    wide: true, read: () => [rate("fastdeploy:generation_tokens_total"), rate("fastdeploy:prompt_tokens_total")], write: short, lines: 2,
    more: () => [el("i"), t("met.generated"), el("i", { class: "b" }), t("met.prompt") + " " + short(rate("fastdeploy:prompt_tokens_total") ?? 0)],
  },
  "met.ttft": { wide: true, ...time("fastdeploy:time_to_first_token_seconds") },
  "met.running": { read: () => [gauge("num_requests_running")], write: short, more: () => t("met.runningMore", { n: count(gauge("max_batch_size")) }) },
  "met.waiting": {
    read: () => [gauge("num_requests_waiting") + gauge("num_requests_enqueued")], write: short,
    more: () => t("met.waitingMore", { n: count(gauge("num_requests_enqueued")) }),
  },
  "met.cache": {
    read: () => [gauge("gpu_cache_usage_perc")], write: percent,
    more: () => t("met.cacheMore", { used: count(gauge("gpu_cache_usage_perc") * gauge("max_gpu_block_num")), all: count(gauge("max_gpu_block_num")) }),
  },
  "met.hits": { read: () => [hits()], write: percent, more: () => t("met.hitsMore", { n: count(gauge("prefix_cache_token_num_total")) }) },
  "met.perToken": time("fastdeploy:time_per_output_token_seconds"),
  "met.whole": time("fastdeploy:e2e_request_latency_seconds"),
  "met.requests": {
    read: () => [perMinute("fastdeploy:requests_number_total")], write: short, unit: "met.perMin",
    more: () => t("met.requestsMore", { ok: count(gauge("request_success_total")) })
      + (config?.images > 0 ? t("met.pictures", { n: count(figures.samples[figures.samples.length - 1].sums.get("tern:images_total") ?? 0) }) : ""),
  },
  "met.errors": {
    read: () => [perMinute("http_requests_total:bad")], write: short, unit: "met.perMin",
    more: () => t("met.errorsMore", { n: count(figures.samples[figures.samples.length - 1].sums.get("http_requests_total:bad") ?? 0) }),
  },
};

function makeTiles() {
  for (const [name, tile] of Object.entries(TILES)) {
    const value = el("span"), more = el("div", { class: "more" });
    const line = el("div", { class: "value" }, value, tile.unit ? el("small", { "data-t": tile.unit }, t(tile.unit)) : null);
    const home = el("section", { class: tile.wide ? "tile wide" : "tile" }, el("h3", {}, el("span", { "data-t": name }, t(name))), line, more);
    const lines = tile.lines ?? 1;
    figures.tiles[name] = { home, value, more, plot: new Plot(home, tile.write, lines), series: Array.from({ length: lines }, () => []) };
    $("met-grid").append(home);
  }
}

function showFigures(fresh) {
  for (const [name, tile] of Object.entries(TILES)) {
    const shown = figures.tiles[name], now = tile.read();
    if (fresh) {
      now.forEach((value, i) => {
        shown.series[i].push(value);
        if (shown.series[i].length > SAMPLES) shown.series[i].shift();
      });
    }
    shown.value.textContent = now[0] === null ? "–" : tile.write(now[0]);
    const more = tile.more();
    shown.more.replaceChildren(...(Array.isArray(more) ? more : [more]));
    if (!Array.isArray(more)) shown.more.title = more;
    shown.plot.draw(shown.series);
  }
  showEngines();
}

// A row for each of several engines.
function showEngines() {
  const engines = figures.samples[figures.samples.length - 1].engines;
  const names = [...(engines.get("tern:engine_requests_running")?.keys() ?? [])];
  $("met-engines").hidden = names.length < 2;
  if (names.length < 2) return;
  const columns = [["met.running", "tern:engine_requests_running"], ["met.waiting", "tern:engine_requests_waiting"],
    ["met.generated", "tern:engine_generation_tokens_total"]];
  const head = el("tr", {}, el("th", {}, t("met.engine")), ...columns.map(([words]) => el("th", {}, t(words))));
  const rows = names.map((name) => el("tr", {}, el("td", {}, name), ...columns.map(([, figure]) => el("td", {}, count(engines.get(figure)?.get(name) ?? 0)))));
  $("met-engines").replaceChildren(el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
}

function tellMetrics(state, none = "") {
  $("met-live").classList.toggle("on", state === "" && none === "");
  $("met-state").textContent = state;
  $("met-none").textContent = none;
  $("met-none").hidden = none === "";
  $("met-grid").hidden = none !== "";
}

async function takeSample() {
  clearTimeout(figures.timer);
  if (!figures.open || figures.paused || document.hidden || figures.asking) return;
  figures.asking = true;
  try {
    if (config === null) await loadConfig();
    if (!config.metrics) return tellMetrics("", t("met.elsewhere"));
    const sample = readFigures(await (await call("metrics")).text());
    sample.at = performance.now() / 1000;
    const last = figures.samples[figures.samples.length - 1];
    const name = "fastdeploy:requests_number_total";
    if (last && (sample.sums.get(name) < last.sums.get(name) || sample.at - last.at > 30)) figures.samples = [];  // started anew, or a long pause
    figures.samples.push(sample);
    if (figures.samples.length > WINDOW + 2) figures.samples.shift();
    tellMetrics("");
    showFigures(true);
  } catch (error) {
    if (error.status === 401) return tellMetrics("", t("met.keyNeeded"));
    tellMetrics(error.status ? error.message : t("met.lost"));
  } finally {
    figures.asking = false;
  }
  clearTimeout(figures.timer);
  if (figures.open && !figures.paused) figures.timer = setTimeout(takeSample, EVERY);
}

function openMetrics(open) {
  figures.open = open;
  if (open) takeSample();
  else clearTimeout(figures.timer);
}

function setupMetrics() {
  makeTiles();
  $("met-pause").onclick = () => {
    figures.paused = !figures.paused;
    setIcon($("met-pause"), figures.paused ? "play" : "pause");
    const words = $("met-pause").querySelector("span");
    words.dataset.t = figures.paused ? "met.go" : "met.pause";
    words.textContent = t(words.dataset.t);
    tellMetrics(figures.paused ? t("met.paused") : "");
    takeSample();
  };
  document.addEventListener("visibilitychange", takeSample);
}
