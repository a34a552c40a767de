// Unlabelled samples that may be a new class, and giving that class a name.

import { byId, make, say, show, showEach } from "./element.js";
import { count, percent, plural } from "./format.js";
import { caption, picture } from "./picture.js";
import { post } from "./service.js";
import { standOut, usualKey } from "./usual.js";

const MOST_NAMED = 3;
const SETTLING_MS = 5000; // until a proposal that was decided about is gone

/** @type {any} GET /model, as it is by now */
let newest = null;

/**
 * @param {any[]} proposals
 * @param {any} model
 * @param {() => void} changed
 */
export function showProposals(proposals, model, changed) {
  byId("proposals-none").hidden = proposals.length > 0;
  // A card stays as it is while its proposal grows, and others come and go: somebody may be typing
  // a name into it.
  const place = byId("proposals");
  newest = model;
  showEach(place, proposals.map((one) => [one.proposal, () => card(one, changed)]));
  const shape = model?.image_shape ?? null;
  for (const [at, one] of proposals.entries()) {
    const part = (/** @type {string} */ name) => /** @type {HTMLElement} */ (place.children[at].querySelector(name));
    show(part(".pictures"), [shape, usualKey()], () => [picture(one.prototype, shape, `Mean of the samples of proposal ${one.proposal}`)]);
    say(part(".facts-line"), facts(one));
    say(part(".unusual"), shape ? "" : stands(one));
    say(part(".faint"), caption([one.prototype], shape));
  }
}

/** @param {any} one */
function facts(one) {
  // Where all classes are as likely, it looks like none of them.
  const even = one.nearest_probabilities[0] < 1.5 * (one.nearest_probabilities.at(-1) ?? 0) && one.nearest_probabilities.length > 1;
  const nearest = even ? "" : one.nearest_classes.slice(0, 3).map((/** @type {any} */ label, /** @type {number} */ place) =>
    `${label} (${percent(one.nearest_probabilities[place], 0)})`).join(", ");
  return `${plural(one.samples, "sample")} between sample ${count(one.first_sample)} and ${count(one.last_sample)}. ${nearest ? `Looks most like ${nearest}.` : even ? "Looks like no known class more than another." : ""}${one.may_be_known ? " Perhaps these are the known classes, which have moved together: the samples spread as widely as those of all of them. A name would be the name of them all." : ""}`;
}

/** Where its prototype is most unusual, with amount. @param {any} one */
function stands(one) {
  const found = standOut(one.prototype, MOST_NAMED);
  return found.length ? `Unusual: ${found.map((each) => `${each.name} ${each.value}, usually ${each.usual}`).join("; ")}.` : "";
}

/** @param {any} one @param {() => void} changed */
function card(one, changed) {
  const field = `name-${one.proposal}`;
  const input = make("input", { id: field, name: "label", autocomplete: "off", required: true, maxlength: 200, list: "known-classes" });
  let decided = false;
  const decide = async (/** @type {string | number | null} */ label) => {
    if (decided) return; // by the first of two clicks: the second would end among the dead letters
    decided = true;
    say(byId("said"), `Telling the service about proposal ${one.proposal} …`);
    try {
      await post("labels", { proposal: one.proposal, label });
      say(byId("said"), label === null ? `Proposal ${one.proposal} will be dismissed.` : `The samples of proposal ${one.proposal} will be learned as class ${label}.`);
      setTimeout(() => { decided = false; }, SETTLING_MS);
    } catch (problem) {
      say(byId("said"), /** @type {Error} */ (problem).message);
      decided = false;
    }
    changed();
  };
  return make("li", { class: "card", "data-proposal": one.proposal },
    make("div", { class: "pictures large" }),
    make("div", {},
      make("h3", {}, `Perhaps a new class`, make("span", { class: "aside" }, ` (proposal ${one.proposal})`)),
      make("p", { class: "facts-line" }),
      make("p", { class: "unusual" }),
      make("p", { class: "faint" }),
      make("form", { onsubmit: (/** @type {Event} */ event) => { event.preventDefault(); decide(labelOf(input.value, newest)); } },
        make("label", { for: field }, "Name"), input,
        make("button", { type: "submit", class: "primary" }, "Name it"),
        make("button", { type: "button", onclick: () => decide(null) }, "No class"))));
}

/**
 * A whole number is an integer where every known class is one, or none is known: so "4" joins 0 to 3.
 * It is one of the known classes, too, where others are words.
 * @param {string} text
 * @param {any} model
 * @returns {string | number}
 */
export function labelOf(text, model) {
  const trimmed = text.trim();
  const known = (model?.classes ?? []).map((/** @type {any} */ one) => one.label);
  if (known.includes(trimmed)) return trimmed;
  if (!/^-?\d{1,15}$/.test(trimmed)) return trimmed;
  const number = Number(trimmed);
  return known.includes(number) || known.every((/** @type {any} */ label) => typeof label === "number") ? number : trimmed;
}
