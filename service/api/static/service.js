// Questions to the API that the page came from. Addresses are relative, so that a proxy may serve
// the page below any path.

/** An answer that is a problem document; `message` says what to do. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {string} type last part of the document's type
   * @param {string} detail
   */
  constructor(status, type, detail) {
    super(detail);
    this.status = status;
    this.type = type;
  }
}

const PATIENCE_MS = 15_000; // a connection may be dead without a word, as after a laptop slept

const NOT_MODIFIED = 304;

/** Is told ("refused") when the service wants a key. */
export const unauthorized = new EventTarget();

/** When the service answered last: by the page's own clock, which only measures, and by the service's, in Unix seconds. */
export const reached = { at: performance.now(), time: NaN };

/**
 * @param {string} path
 * @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem(0, "unreachable", "The service does not answer. The page goes on trying.");
  }
  if (response.ok || response.status === NOT_MODIFIED) {
    Object.assign(reached, { at: performance.now(), time: Date.parse(response.headers.get("Date") ?? "") / 1000 });
    return response;
  }
  if (response.status === 401) unauthorized.dispatchEvent(new Event("refused"));
  const problem = await response.json().catch(() => ({}));
  // A proxy says so where nobody is behind it.
  if (!problem.type && response.status >= 500) throw new Problem(response.status, "unreachable", `The service does not answer, a proxy says ${response.status}. The page goes on trying.`);
  const type = String(problem.type ?? "").replace("/problems/", "");
  throw new Problem(response.status, type, problem.detail ?? `The answer was ${response.status}.`);
}

/** Answers with an entity tag, by path: they are sent again only where they have changed. @type {Map<string, {tag: string, answer: any}>} */
const kept = new Map();

/**
 * @param {string} path
 * @returns {Promise<any>}
 */
export async function get(path) {
  const before = kept.get(path);
  /** @type {HeadersInit} */
  const headers = before ? { "If-None-Match": before.tag } : {};
  const response = await ask(path, { headers, signal: AbortSignal.timeout(PATIENCE_MS) });
  if (before && response.status === NOT_MODIFIED) return before.answer;
  const [tag, answer] = [response.headers.get("ETag"), await response.json()];
  if (tag) kept.set(path, { tag, answer });
  return answer;
}

/**
 * @param {string} path
 * @param {object} [body]
 * @param {string} [method]
 * @returns {Promise<any>}
 */
export async function post(path, body, method = "POST") {
  const headers = { "Content-Type": "application/json" };
  const options = body === undefined ? {} : { headers, body: JSON.stringify(body) };
  return (await ask(path, { method, ...options })).json();
}

/**
 * @param {string} path
 * @param {object} body
 * @returns {Promise<any>}
 */
export async function put(path, body) {
  return post(path, body, "PUT");
}

/**
 * Let the browser bring a key from now on.
 * @param {string} key
 * @returns {Promise<void>}
 */
export async function beginSession(key) {
  await ask("session", { method: "POST", headers: { Authorization: `Bearer ${key}` } });
}

/**
 * Samples drawn from the model; the same every time for one version.
 * @param {string | number | null} label of a class; null: whatever the model knows
 * @param {number} n
 * @param {boolean} [noise] of single features; without it samples look cleaner
 * @returns {Promise<number[][]>}
 */
export async function drawn(label, n, noise = false) {
  const wanted = label === null ? "" : `&classes=${encodeURIComponent(label)}`;
  const response = await ask(`sample?n=${n}&seed=1&noise=${noise}${wanted}`, {
    headers: { Accept: "application/x-npy" },
  });
  return rows(await response.arrayBuffer());
}

/**
 * The rows of a .npy file of float32 in C order.
 * @param {ArrayBuffer} buffer
 * @returns {number[][]}
 */
export function rows(buffer) {
  const view = new DataView(buffer);
  const begin = 10 + view.getUint16(8, true);
  const header = new TextDecoder().decode(buffer.slice(10, begin));
  const shape = /'shape': \((\d+), (\d+)\)/.exec(header);
  if (!shape || !header.includes("<f4")) throw new Error(`not rows of float32: ${header}`);
  const [n, width] = [Number(shape[1]), Number(shape[2])];
  const all = new Float32Array(buffer.slice(begin));
  return Array.from({ length: n }, (_, row) => [...all.subarray(row * width, (row + 1) * width)]);
}
