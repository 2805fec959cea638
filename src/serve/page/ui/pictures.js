// Pictures that the user brings: by drop, paste or file. They are shown from memory (blob:) and sent as data: URLs.
const KINDS = { png: "png", jpg: "jpeg", jpeg: "jpeg", webp: "webp", gif: "gif", bmp: "bmp", tif: "tiff", tiff: "tiff" };

function pictureType(file) {
  if (file.type.startsWith("image/")) return file.type;
  const kind = KINDS[file.name.toLowerCase().split(".").pop()];
  return kind === undefined ? null : "image/" + kind;
}

// The pictures among `files` that fit into a request of this server; says of the others why not.
function takePictures(files) {
  const pictures = [];
  for (const file of files) {
    const type = pictureType(file);
    if (type === null) continue;
    if (config && file.size * 4 / 3 > config.max_body_bytes) {
      toast(t("pic.large", { name: file.name, most: bytes(config.max_body_bytes * 3 / 4) }), true);
      continue;
    }
    pictures.push({ name: file.name || "picture." + type.slice(6), type, size: file.size, file, url: URL.createObjectURL(file), data: null });
  }
  if (pictures.length === 0 && files.length > 0 && [...files].every((file) => pictureType(file) === null)) {
    toast(t("pic.none"), true);
  }
  return pictures;
}

// As a data: URL, made once.
function pictureData(picture) {
  picture.data ??= new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {  // the browser may know no type for it, or another one
      resolve("data:" + picture.type + ";base64," + reader.result.slice(reader.result.indexOf(",") + 1));
    };
    reader.onerror = () => reject(new Failure(picture.name + ": " + reader.error.message));
    reader.readAsDataURL(picture.file);
  });
  return picture.data;
}

function dropPicture(picture) {
  URL.revokeObjectURL(picture.url);
}

// An <img>, or the file's name where the browser cannot show its kind.
function pictureNode(picture) {
  const image = el("img", { src: picture.url, alt: picture.name, draggable: "false" });
  image.onerror = () => image.replaceWith(el("span", { title: t("ocr.noShow") }, picture.name));
  return image;
}

function enlarge(picture) {
  $("picture-large").src = picture.url;
  $("picture-large").alt = picture.name;
  $("picture-dialog").showModal();
}

function thumb(picture, onremove) {
  const open = el("button", { class: "open", type: "button", title: picture.name, onclick: () => enlarge(picture) }, pictureNode(picture));
  const node = el("div", { class: "thumb" }, open);
  if (onremove) {
    node.append(el("button", { class: "remove", type: "button", title: t("remove"), "aria-label": t("remove") + ": " + picture.name,
      "data-t-title": "remove", onclick: () => onremove(node) }, icon("close")));
  }
  return node;
}

// Pictures go to the view that is open.
let addPictures = () => {};

function setupPictures() {
  const files = $("files");
  files.onchange = () => {
    addPictures(files.files);
    files.value = "";
  };
  $("picture-dialog").onclick = () => $("picture-dialog").close();
  const carries = (event) => event.dataTransfer?.types.includes("Files") && config?.images > 0;
  let depth = 0;
  const cover = (shown) => {
    depth = shown ? depth : 0;
    $("dropcover").hidden = !shown;
  };
  addEventListener("dragenter", (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    depth++;
    cover(true);
  });
  addEventListener("dragover", (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();  // a file is never opened in the page's place
  });
  addEventListener("dragleave", (event) => {
    if (carries(event) && --depth <= 0) cover(false);
  });
  addEventListener("drop", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    cover(false);
    if (config?.images > 0) addPictures(event.dataTransfer.files);
  });
  addEventListener("paste", (event) => {
    const pasted = [...(event.clipboardData?.files ?? [])];
    if (pasted.length === 0 || !(config?.images > 0)) return;
    event.preventDefault();
    addPictures(pasted);
  });
}
