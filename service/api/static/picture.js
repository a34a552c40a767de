// One sample as a picture: pixels where samples are images, a profile of its features otherwise, in
// deviations from usual where that is known: beside revolutions, bars would hide.

import { make } from "./element.js";
import { away, inShort } from "./usual.js";

const MOST_FEATURES = 4096;
const BARS = 24;
const FEW_PIXELS = 16; // below it, squares hide what they show
const LEAST_SCALE = 3; // deviations from usual: the ends of a profile
const MOST_SCALE = 8;

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
  const far = away(features);
  const said = far && inShort(features);
  const scale = range ?? extent([features]);
  return profile(far ?? features, said ? `${label}; ${said}` : label, scale);
}

/**
 * Numbers of features that are no sample: a picture, or bars as they are.
 * @param {number[]} numbers 0 to 1
 * @param {Shape} shape
 * @param {string} label
 */
export function portions(numbers, shape, label) {
  return shape || numbers.length > MOST_FEATURES ? picture(numbers, shape, label, [0, 1]) : profile(numbers, label, [0, 1]);
}

/**
 * What the bars of profiles are; nothing to say of images.
 * @param {number[][]} samples
 * @param {Shape} shape
 */
export function caption(samples, shape) {
  if (shape || !samples[0]?.length) return "";
  if (!away(samples[0])) return "Features in their order, in the units that were sent.";
  const end = Number(extent(samples)[1].toPrecision(2));
  return `Features in their order, in deviations from usual, from −${end} to ${end}.`;
}

/**
 * The lowest and the highest of some samples, so that they are drawn on one scale: values, or
 * deviations from usual.
 * @param {number[][]} samples
 * @returns {[number, number]}
 */
export function extent(samples) {
  const far = samples.map(away).filter((one) => one !== null);
  if (far.length) {
    const most = far.reduce((sum, one) => one.reduce((so_far, value) => Math.max(so_far, Math.abs(value)), sum), LEAST_SCALE);
    return [-Math.min(MOST_SCALE, most), Math.min(MOST_SCALE, most)];
  }
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
  const level = (value) => (98 - (96 * (Math.min(high, Math.max(low, value)) - low)) / (high - low)).toFixed(1);
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
