// Server-sent events, from where the history that was read ends.

import { Line } from "./line.js";

const RETRY_MS = 2000;
const LONGEST_MS = 60_000;
const STEADY_MS = 30_000; // a connection that stood so long was none of the kind that breaks at once
const SHORT_MS = 60_000; // of what came in so short a time, events are fewer than the history's points

/**
 * Follows GET /events from where the history ends. After a break nothing is resumed here: another
 * model may answer by now, so that all has to be asked for again.
 */
export class Feed {
  /**
   * @param {(kind: string, event: any, id: string) => void} heard
   * @param {(live: boolean) => void} changed whether the connection stands
   * @param {() => void} broke called a while after a break, and after a long time out of sight
   */
  constructor(heard, changed, broke) {
    this.changed = changed;
    this.broke = broke;
    this.line = new Line(heard, (live) => (live ? this.stands() : this.breaks()));
    this.broken = true; // until there is a history to go on from
    this.opened = Infinity;
    this.pause = RETRY_MS;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.retry = undefined;
    let hid = 0;
    // A hidden page keeps no connection: browsers allow only a few to one service.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        hid = performance.now();
        this.stop();
      } else if (this.broken || performance.now() - hid > SHORT_MS) this.broke();
      else this.line.join();
    });
  }

  /** @param {string} after id of the last event that is known */
  follow(after) {
    this.stop();
    this.line.last = after;
    this.broken = false;
    if (!document.hidden) this.line.join();
  }

  stands() {
    this.opened = Math.min(this.opened, performance.now());
    this.changed(true);
  }

  breaks() {
    this.changed(false);
    const steady = performance.now() - this.opened > STEADY_MS;
    this.stop();
    this.broken = true;
    if (steady) this.pause = RETRY_MS;
    this.retry = setTimeout(() => document.hidden || this.broke(), this.pause);
    this.pause = Math.min(LONGEST_MS, 2 * this.pause);
  }

  stop() {
    clearTimeout(this.retry);
    this.opened = Infinity;
    this.line.leave();
  }
}
