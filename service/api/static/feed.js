// Server-sent events, from where the history that was read ends.

/**
 * Follows GET /events. The browser resumes after a break by itself (Last-Event-ID); after the page
 * was hidden, and after an answer that ended for good, the last id is given again here.
 */
export class Feed {
  /**
   * @param {(kind: string, event: any, id: string) => void} heard
   * @param {(live: boolean) => void} changed whether the connection stands
   */
  constructor(heard, changed) {
    this.heard = heard;
    this.changed = changed;
    this.last = "0";
    /** @type {EventSource | null} */
    this.source = null;
    // A hidden page keeps no connection: browsers allow only a few to one service.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.open()));
  }

  /** @param {string} after id of the last event that is known */
  follow(after) {
    this.last = after;
    this.stop();
    if (!document.hidden) this.open();
  }

  open() {
    if (this.source) return;
    const source = (this.source = new EventSource(`events?after=${this.last}`));
    source.onopen = () => this.changed(true);
    source.onerror = () => {
      this.changed(false);
      if (source.readyState !== EventSource.CLOSED || this.source !== source) return;
      this.source = null;
      setTimeout(() => document.hidden || this.open(), RETRY_MS);
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        if (event.lastEventId) this.last = event.lastEventId;
        this.heard(kind, JSON.parse(event.data), event.lastEventId);
      });
    }
  }

  stop() {
    this.source?.close();
    this.source = null;
  }
}

const RETRY_MS = 2000;

const KINDS = [
  "batch_learned", "batch_set_aside", "batch_passed", "mode_changed", "change_detected",
  "labels_held", "ert_changed", "set_aside_released", "windows_settled", "boundary",
  "change_continued", "samples_repeated", "prior_shift", "features_drifting", "outlier_burst",
  "outlier_burst_continued", "shadow_alarm",
  "replay", "class_discovered", "labels_matched", "labels_missed", "class_proposed",
  "proposal_closed", "unknowns_learned", "model_published", "version_held", "hold_ended",
  "model_restored", "entry_rejected", "dead_letters_dropped", "missed",
];
