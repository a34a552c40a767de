// Numbers and times as people read them. What is not known is "unknown", never 0.

export const UNKNOWN = "unknown";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** @typedef {number | null | undefined} Known */

/** @param {Known} value */
export function count(value) {
  return isKnown(value) ? whole.format(value) : UNKNOWN;
}

/**
 * @param {Known} value 0 to 1
 * @param {number} [digits]
 */
export function percent(value, digits = 1) {
  return isKnown(value) ? `${(100 * value).toFixed(digits)}\u00a0%` : UNKNOWN;
}

/**
 * @param {Known} value
 * @param {number} [digits] significant ones
 */
export function decimal(value, digits = 3) {
  if (!isKnown(value)) return UNKNOWN;
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e15)) return withMinus(scientific(value));
  if (Math.abs(value) >= 10 ** digits) return withMinus(whole.format(value));
  return withMinus(String(Number(value.toPrecision(digits))));
}

/** With a minus as wide as a plus, not a hyphen. @param {string} number */
export function withMinus(number) {
  return number.replace("-", "−");
}

/** @param {number} value */
function scientific(value) {
  const [mantissa, exponent] = value.toExponential(1).split("e");
  const raised = [...exponent.replace("+", "")].map((one) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(one)]);
  return `${mantissa} · 10${raised.join("")}`;
}

/** @param {Known} seconds Unix time */
export function clock(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const moment = new Date(1000 * seconds);
  const today = moment.toDateString() === new Date().toDateString();
  return today ? moment.toLocaleTimeString(undefined, { hourCycle: "h23" }) : moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
}

/** @type {[number, string][]} */
const UNITS = [[86_400, "day"], [3600, "hour"], [60, "minute"]];

/** A stretch of time, in the largest unit of which it has two. @param {number} seconds */
export function lasting(seconds) {
  const [size, name] = UNITS.find(([unit]) => seconds >= 2 * unit) ?? [1, "second"];
  return plural(Math.floor(seconds / size), name);
}

/**
 * @param {number} number
 * @param {string} one
 * @param {string} [many]
 */
export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

const natural = new Intl.Collator("en", { numeric: true });

/**
 * Labels as people look for them: 2 before 10, and words by their letters.
 * @param {string | number} one
 * @param {string | number} other
 */
export function byLabel(one, other) {
  return natural.compare(String(one), String(other));
}

/**
 * @param {Known} value
 * @returns {value is number}
 */
export function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}
