// Nodes, numbers, notices. Everything that is shown is made of nodes and text; nothing here reads a text as markup.
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// el("p", {class: "x", onclick: f, "aria-label": "y"}, child, ...): strings become text nodes.
function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(tag, properties = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(properties)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const icon = (name) => svg("svg", { class: "i", "aria-hidden": "true" }, svg("use", { href: "#i-" + name }));
function setIcon(button, name) {
  button.querySelector("use").setAttribute("href", "#i-" + name);
}

// A small button of an icon; `key` names its words, which follow the language.
function iconButton(name, key, onclick, more = {}) {
  return el("button", { class: "ghost small", type: "button", title: t(key), "aria-label": t(key), "data-t-title": key, onclick, ...more },
    icon(name));
}

const clear = (node) => node.replaceChildren();

function toast(text, bad = false) {
  const line = el("p", bad ? { class: "bad" } : {}, text);
  $("toasts").append(line);
  while ($("toasts").childElementCount > 3) $("toasts").firstElementChild.remove();
  setTimeout(() => line.remove(), bad ? 7000 : 2200);
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // no secure context: plain http on another host
    const area = el("textarea", { readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) return toast(t("copyFailed"), true);
  }
  toast(t("copied"));
}

function saveText(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

const seconds = (s) => (s < 0.9995 ? Math.round(s * 1000) + " ms" : s < 100 ? s.toFixed(s < 10 ? 2 : 1) + " s" : Math.round(s) + " s");
const count = (n) => Math.round(n).toLocaleString(language === 1 ? "zh-CN" : "en");
function short(n) {
  if (!isFinite(n)) return "–";
  if (n >= 1e6) return (n / 1e6).toFixed(n < 1e7 ? 2 : 1) + "M";
  if (n >= 1e4) return (n / 1e3).toFixed(n < 1e5 ? 1 : 0) + "k";
  return n >= 100 || Number.isInteger(n) ? String(Math.round(n)) : n.toFixed(1);
}
const bytes = (n) => (n >= 1 << 20 ? (n / (1 << 20)).toFixed(n < 10 << 20 ? 1 : 0) + " MiB" : Math.max(1, Math.round(n / 1024)) + " KiB");

// What is remembered on this machine beyond the tab: language and colours, nothing else. Storage may be switched off.
function remember(name, value) {
  try {
    localStorage.setItem("tern." + name, value);
  } catch { /* not remembered then */ }
}
function remembered(name) {
  try {
    return localStorage.getItem("tern." + name);
  } catch {
    return null;
  }
}

function growArea(area) {
  if (area.offsetParent === null) return;  // its view is not open: it has no height
  area.style.height = "auto";
  area.style.height = area.scrollHeight + "px";
}
