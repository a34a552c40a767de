// A sample of one's own: pasted, dropped or drawn; and what the model says of it.

import { byId, make, say } from "./element.js";
import { count, decimal, isKnown, percent } from "./format.js";
import { picture } from "./picture.js";
import { drawn, post } from "./service.js";
import { featureNames, standOut } from "./usual.js";

const INK = 0.07; // width of the pen, of the picture
const SURE = 3; // classes that are named
const MOST_NAMED = 12; // features

/** @typedef {{model: any}} Shared */

/**
 * Make the box work.
 * @param {() => any} model GET /model, as it is by now
 */
export function begin(model) {
  const text = byId("sample-text");
  byId("sample-form").addEventListener("submit", (/** @type {Event} */ event) => {
    event.preventDefault();
    let features;
    try {
      features = read(text.value, model()?.features ?? null);
    } catch (problem) {
      return complain(/** @type {Error} */ (problem).message);
    }
    ask(features, model());
  });
  byId("sample-take").addEventListener("click", async () => {
    try {
      const [features] = await drawn(null, 1).then((rows) => rows);
      text.value = features.map((value) => Number(value.toPrecision(6))).join(", ");
      ask(features, model());
    } catch (problem) {
      complain(/** @type {Error} */ (problem).message);
    }
  });
  const box = byId("sample-box");
  box.addEventListener("dragover", (/** @type {DragEvent} */ event) => { event.preventDefault(); box.classList.add("over"); });
  box.addEventListener("dragleave", () => box.classList.remove("over"));
  box.addEventListener("drop", (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    box.classList.remove("over");
    const [file] = event.dataTransfer?.files ?? [];
    if (file) take(file, model);
  });
  byId("sample-file").addEventListener("change", (/** @type {any} */ event) => {
    const [file] = event.target.files;
    event.target.value = ""; // so that the same file can be chosen again
    if (file) take(file, model);
  });
  pen(model);
}

/**
 * The numbers of a text: separated by anything, or JSON.
 * @param {string} text
 * @param {number | null} wanted D; null: not known yet
 * @returns {number[]}
 */
export function read(text, wanted) {
  const [line] = text.trim().split(/\n\s*\n/);
  const words = line.replace(/[[\]{}()"']/g, " ").split(/[\s,;]+/).filter(Boolean);
  const odd = words.find((word) => !Number.isFinite(Number(word)));
  if (odd !== undefined) throw new Error(`“${odd.slice(0, 20)}” is no number. Paste the features of one sample, separated by commas or spaces.`);
  if (!words.length) throw new Error("There is nothing to ask about. Paste the features of one sample, or take one from the model.");
  if (wanted && words.length !== wanted) throw new Error(`These are ${count(words.length)} numbers; a sample has ${count(wanted)}.`);
  return words.map(Number);
}

/** @param {File} file @param {() => any} model */
async function take(file, model) {
  try {
    if (!file.type.startsWith("image/")) {
      const content = await file.text();
      byId("sample-text").value = content.slice(0, 100_000);
      return ask(read(content, model()?.features ?? null), model());
    }
    const shape = model()?.image_shape;
    if (!shape) throw new Error("This model's samples are no images. Drop a file of numbers instead.");
    const bitmap = await createImageBitmap(file);
    const [height, width] = shape;
    const canvas = new OffscreenCanvas(width, height);
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.drawImage(bitmap, 0, 0, width, height);
    const brought = bitmap.width === width && bitmap.height === height ? null
      : `The picture was brought from ${count(bitmap.width)} × ${count(bitmap.height)} to ${count(width)} × ${count(height)} pixels.`;
    await ask(intensities(context.getImageData(0, 0, width, height).data, shape[2] ?? 1), model(), brought);
  } catch (problem) {
    complain(/** @type {Error} */ (problem).message);
  }
}

/**
 * The numbers of a picture, which becomes what is asked about instead of the text.
 * @param {Uint8ClampedArray} pixels RGBA
 * @param {number} channels
 */
function intensities(pixels, channels) {
  byId("sample-text").value = "";
  const features = [];
  for (let place = 0; place < pixels.length; place += 4) {
    const [red, green, blue] = [pixels[place] / 255, pixels[place + 1] / 255, pixels[place + 2] / 255];
    if (channels === 3) features.push(red, green, blue);
    else features.push(0.299 * red + 0.587 * green + 0.114 * blue);
  }
  return features;
}

/** Let people draw where samples are images of one channel. @param {() => any} model */
function pen(model) {
  const canvas = byId("sample-pen");
  const context = canvas.getContext("2d", { willReadFrequently: true });
  let down = false;
  const at = (/** @type {PointerEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * canvas.width, ((event.clientY - box.top) / box.height) * canvas.height];
  };
  const wipe = () => { context.fillStyle = "#000"; context.fillRect(0, 0, canvas.width, canvas.height); };
  wipe();
  canvas.addEventListener("pointerdown", (/** @type {PointerEvent} */ event) => {
    down = true;
    canvas.setPointerCapture(event.pointerId);
    const [x, y] = at(event);
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x + 0.01, y);
    stroke();
  });
  const stroke = () => {
    context.strokeStyle = "#fff";
    context.lineCap = context.lineJoin = "round";
    context.lineWidth = Math.max(1.5, INK * canvas.width);
    context.stroke();
  };
  canvas.addEventListener("pointermove", (/** @type {PointerEvent} */ event) => {
    if (!down) return;
    context.lineTo(...at(event));
    stroke();
  });
  canvas.addEventListener("pointerup", () => {
    down = false;
    const [height, width] = model()?.image_shape ?? [0, 0];
    if (!height) return;
    const small = new OffscreenCanvas(width, height);
    const reader = /** @type {OffscreenCanvasRenderingContext2D} */ (small.getContext("2d"));
    reader.drawImage(canvas, 0, 0, width, height);
    ask(intensities(reader.getImageData(0, 0, width, height).data, 1), model());
  });
  byId("sample-wipe").addEventListener("click", wipe);
}

/** Show the pen where it is of use. @param {any} model */
export function fit(model) {
  const shape = model?.image_shape;
  byId("sample-draw").hidden = !shape || shape[2] === 3;
  say(byId("sample-wants"), model?.features ? `${count(model.features)} numbers make a sample${shape ? ", from 0 to 1, row by row" : inTheirOrder(featureNames())}.` : "Nothing has been learned yet.");
}

/** @param {string[] | null} names of features */
function inTheirOrder(names) {
  const left = (names?.length ?? 0) - MOST_NAMED;
  return names ? `: ${names.slice(0, MOST_NAMED).join(", ")}${left > 0 ? ` and ${count(left)} more` : ""}` : "";
}

/** @param {string} message */
function complain(message) {
  byId("answer").replaceChildren(make("p", { class: "notice" }, message));
}

let asks = 0;

/** @param {number[]} features @param {any} model @param {string | null} [brought] what was done to a picture before */
async function ask(features, model, brought = null) {
  const turn = (asks += 1);
  try {
    const body = { features: [features] };
    const [typical, named] = await Promise.all([
      post("outliers", { ...body, components: true }),
      post("classify", body).catch((problem) => { if (problem.status === 409) return null; throw problem; }),
    ]);
    if (turn === asks) byId("answer").replaceChildren(...told(features, model, typical, named, brought));
  } catch (problem) {
    if (turn === asks) complain(/** @type {Error} */ (problem).message);
  }
}

/** @param {number[]} features @param {any} model @param {any} typical @param {any} named @param {string | null} brought */
function told(features, model, typical, named, brought) {
  const p_value = typical.p_values?.[0] ?? null;
  const ranked = named ? named.classes.map((/** @type {any} */ label, /** @type {number} */ place) =>
    ({ label, probability: named.probabilities[0][place] })).sort((/** @type {any} */ a, /** @type {any} */ b) => b.probability - a.probability) : [];
  const unusual = model?.image_shape ? "" : standOut(features, SURE).map((one) => `${one.name} ${one.value}, usually ${one.usual}`).join("; ");
  return [
    make("div", { class: "pictures large" }, picture(features, model?.image_shape ?? null, "The sample that was asked about")),
    make("div", {},
      make("p", { class: "verdict" }, named ? ["Class ", make("b", { id: "answer-class" }, named.labels[0])] : "No class is known yet",
        make("span", { class: "badge", "data-level": typical.inliers[0] ? "good" : "alarm" }, typical.inliers[0] ? "inlier" : "outlier")),
      brought && make("p", { class: "faint", id: "answer-brought" }, brought),
      make("ul", { class: "classes" }, ranked.slice(0, SURE).map((/** @type {any} */ one) => make("li", {},
        make("b", { title: one.label }, one.label), make("span", { class: "meter", "data-level": "plain", share: one.probability }), make("span", { class: "figure" }, percent(one.probability))))),
      make("dl", { class: "facts" },
        unusual.length ? item("Stands out", unusual) : null,
        item("p-value", isKnown(p_value) ? `${decimal(p_value, 2)}: ${percent(p_value)} of usual samples are at least as strange` : "unknown: too few samples were learned"),
        item("Component", `${typical.components[0]}, responsible for ${percent(typical.responsibilities[0])} of it`),
        item("Log-likelihood", `${decimal(typical.log_likelihoods[0])} nats`),
        item("Answered by", `version ${typical.model_version}`))),
  ];
}

/** @param {string} name @param {string} value */
function item(name, value) {
  return make("div", {}, make("dt", {}, name), make("dd", {}, value));
}
