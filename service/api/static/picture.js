// One sample as a picture: pixels where samples are images, a profile of its features otherwise.

import { make } from "./element.js";

const MOST_FEATURES = 4096;
const BARS = 24;
const FEW_PIXELS = 16; // below it, squares hide what they show

/** @typedef {number[] | null} Shape height, width and perhaps channels; null: a table */

/**
 * @param {number[]} features
 * @param {Shape} shape
 * @param {string} label what it shows, for who cannot see it
 * @param {[number, number]} [range] values that are lowest and highest in a profile
 */
export function picture(features, shape, label, range) {
  if (shape && [1, 3].includes(shape[2] ?? 1) && product(shape) === features.length) return image(features, shape, label);
  if (!features.length || features.length > MOST_FEATURES) return make("span", { class: "faint" }, "too wide to draw");
  return profile(features, label, range ?? extent([features]));
}

/**
 * The lowest and the highest value of some samples, so that they are drawn on one scale.
 * @param {number[][]} samples
 * @returns {[number, number]}
 */
export function extent(samples) {
  let [low, high] = [Infinity, -Infinity];
  for (const features of samples) for (const value of features) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return high > low ? [low, high] : [low - 1, high + 1];
}

/** @param {number[]} features @param {number[]} shape @param {string} label */
function image(features, [height, width, channels = 1], label) {
  const canvas = make("canvas", { class: width < FEW_PIXELS ? "pixels smooth" : "pixels", width, height, role: "img", "aria-label": label });
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(width, height);
  for (let place = 0; place < width * height; place += 1) {
    for (let colour = 0; colour < 3; colour += 1) {
      const value = features[place * channels + (channels === 3 ? colour : 0)];
      pixels.data[4 * place + colour] = 255 * Math.min(1, Math.max(0, value));
    }
    pixels.data[4 * place + 3] = 255;
  }
  context.putImageData(pixels, 0, 0);
  return canvas;
}

/** @param {number[]} features @param {string} label @param {[number, number]} range */
function profile(features, label, [low, high]) {
  /** @param {number} value */
  const level = (value) => (100 - (96 * (value - low)) / (high - low) - 2).toFixed(1);
  const zero = low < 0 && high > 0 ? level(0) : level(low);
  const step = 100 / features.length;
  const path = features.length <= BARS
    ? features.map((value, place) => {
        const [left, right] = [(place + 0.15) * step, (place + 0.85) * step];
        return `M${left} ${zero}V${level(value)}H${right}V${zero}Z`;
      }).join("")
    : `M${features.map((value, place) => `${(place + 0.5) * step} ${level(value)}`).join("L")}`;
  return make("svg", { class: "profile", viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": label },
    make("line", { x1: 0, x2: 100, y1: zero, y2: zero, class: "zero" }),
    make("path", { d: path, class: features.length <= BARS ? "bars" : "line" }));
}

/** @param {number[]} numbers */
function product(numbers) {
  return numbers.reduce((so_far, one) => so_far * one, 1);
}
