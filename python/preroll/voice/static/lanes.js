// A lane per model stage: when it worked in the last minute, and what its queue was like.
import { svg } from "./draw.js";

const NAMES = [["stt", "speech to text"], ["llm", "language model"], ["tts", "text to speech"]];
const SPAN_MS = 60_000;

export class Lanes {
  constructor(body) {
    this.lanes = new Map();
    for (const [role, name] of NAMES) {
      const row = body.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = name;
      row.append(head);
      const cells = ["queue", "wait", "busy"].map(() => row.insertCell());
      cells.forEach((cell) => { cell.textContent = "–"; });
      const picture = svg("svg", { viewBox: "0 0 600 20", preserveAspectRatio: "none", "aria-hidden": "true" });
      row.insertCell().append(picture);
      this.lanes.set(role, { cells, picture, spans: [], open: null });
    }
    setInterval(() => this.draw(), 500);
  }

  begin(role) { this.lanes.get(role).open ??= performance.now(); }

  pulse(role) { this.begin(role); }

  end(role) {
    const lane = this.lanes.get(role);
    if (lane.open !== null) lane.spans.push([lane.open, performance.now()]);
    lane.open = null;
  }

  // The server's own figures of a turn: waits in the queues, and when speech was made.
  turn(message) {
    const now = performance.now();
    const { ms } = message;
    if (ms.first_clause !== undefined) {
      const tts = this.lanes.get("tts");
      tts.spans.push([now - (ms.end - ms.first_clause), now - (ms.end - (ms.tts_first_audio ?? ms.end))]);
    }
    for (const [role, lane] of this.lanes) {
      const wait = message.queue_ms[role];
      lane.cells[0].textContent = message.queue_depth[role] ?? "–";
      lane.cells[1].textContent = wait === undefined ? "–" : `${wait.toFixed(1)} ms`;
    }
    this.draw();
  }

  draw() {
    const now = performance.now();
    for (const lane of this.lanes.values()) {
      lane.spans = lane.spans.filter(([, to]) => to > now - SPAN_MS);
      const spans = lane.open === null ? lane.spans : [...lane.spans, [lane.open, now]];
      const x = (t) => Math.max(0, 600 * (1 - (now - t) / SPAN_MS));
      lane.picture.replaceChildren(
        ...spans.map(([from, to]) => svg("rect", { class: "bar", x: x(from), y: 3, width: Math.max(1, x(to) - x(from)), height: 14 })),
      );
      const busy = spans.reduce((sum, [from, to]) => sum + (to - Math.max(from, now - SPAN_MS)), 0);
      lane.cells[2].textContent = `${Math.round((100 * busy) / SPAN_MS)} %`;
    }
  }
}
