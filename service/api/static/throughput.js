// Samples per second, as the trainer's reports of the last seconds tell.

const SECONDS = 10;

export class Throughput {
  constructor() {
    /** @type {{time: number, samples: number}[]} */
    this.reports = [];
  }

  /** @param {{time: number, stream_samples: number}} drift GET /drift */
  add({ time, stream_samples: samples }) {
    const last = this.reports.at(-1);
    if (last?.time === time) return;
    // After a rollback there are fewer than there were: what was before says nothing of the rate.
    if (last && samples < last.samples) this.reports = [];
    this.reports.push({ time, samples });
    while (this.reports.length > 2 && this.reports[1].time < time - SECONDS) this.reports.shift();
  }

  /** Null while it is not known. @returns {number | null} */
  get rate() {
    const [first, last] = [this.reports[0], this.reports.at(-1)];
    if (!first || !last || last.time === first.time) return null;
    return (last.samples - first.samples) / (last.time - first.time);
  }
}
