// Views, language, colours, keys; and the start.
const VIEWS = ["chat", "ocr", "metrics"];
let view = "chat";

function openView(name, focus = false) {
  view = name;
  for (const other of VIEWS) {
    const chosen = other === name, tab = $("tab-" + other);
    $("view-" + other).hidden = !chosen;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen && focus) tab.focus();
  }
  if (location.hash !== "#" + name) history.replaceState(null, "", "#" + name);
  openMetrics(name === "metrics");
  if (name === "chat") growArea($("draft"));
  addPictures = name === "ocr" ? addToOcr : name === "chat" ? addToDraft : () => {};
}

function setupViews() {
  for (const name of VIEWS) $("tab-" + name).onclick = () => openView(name);
  document.querySelector(".tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? 2 : step ? (VIEWS.indexOf(view) + step + 3) % 3 : -1;
    if (to < 0) return;
    event.preventDefault();
    openView(VIEWS[to], true);
  });
  const wanted = () => VIEWS.find((name) => "#" + name === location.hash);
  addEventListener("hashchange", () => wanted() && openView(wanted()));
  openView(wanted() ?? "chat");
}

// Colours: as the system, light, dark.
const THEMES = ["auto", "light", "dark"];
let theme = "auto";
function showTheme() {
  document.documentElement.dataset.colours = theme;
  const button = $("theme-button");
  setIcon(button, { auto: "auto", light: "sun", dark: "moon" }[theme]);
  button.dataset.tTitle = "theme." + theme;
  button.title = t(button.dataset.tTitle);
  button.setAttribute("aria-label", button.title);
}

function setupTheme() {
  theme = THEMES.find((name) => name === remembered("colours")) ?? "auto";
  $("theme-button").onclick = () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % 3];
    remember("colours", theme);
    showTheme();
  };
  showTheme();
}

function showLanguage() {
  applyWords();
  $("language-button").textContent = language === 1 ? "EN" : "中文";
  $("language-button").lang = language === 1 ? "en" : "zh";
  $("language-button").setAttribute("aria-label", language === 1 ? "English" : "中文");
  showChatConfig();
  $("ocr-own").placeholder = t("ocr.ownDefault");
  showKeys();
  for (const card of ocr.cards) card.tell();
  if (figures.samples.length > 0) showFigures(false);
}

function setupLanguage() {
  const kept = remembered("language");
  language = (kept ?? navigator.language).startsWith("zh") ? 1 : 0;
  $("language-button").onclick = () => {
    language = 1 - language;
    remember("language", language === 1 ? "zh" : "en");
    showLanguage();
  };
  showLanguage();
}

function setupKeys() {
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select");
    if (event.altKey && !event.ctrlKey && !event.metaKey && "123".includes(event.code.replace("Digit", "")) && event.code.startsWith("Digit")) {
      event.preventDefault();
      openView(VIEWS[Number(event.code.slice(5)) - 1], true);
    } else if (event.altKey && event.code === "KeyN" && !event.ctrlKey) {
      event.preventDefault();
      openView("chat");
      newChat();
    } else if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && view === "chat") {
      event.preventDefault();
      $("draft").focus();
    } else if (event.key === "Escape" && document.querySelector("dialog[open]") === null && view === "chat") {
      if (!$("settings").hidden) openSettings(false);
      else chat.busy?.abort();
    }
  });
}

// Asks the server what it offers; again after a new key.
async function start() {
  try {
    await loadConfig();
  } catch (error) {
    if (error.status !== 401) toast(error.message, true);
    return;
  }
  if (figures.open) takeSample();
}

setupTheme();
setupKey();
setupPictures();
setupSettings();
setupChat();
setupOcr();
setupMetrics();
setupViews();
setupLanguage();
showOcrConfig();
setupKeys();
showDraft();
$("draft").focus({ preventScroll: true });
start();
