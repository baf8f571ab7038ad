// One turn: what was waited for between the last word and the first sound of the answer.
import { svg } from "./draw.js";

const STEPS = [
  ["silence that ends the turn", "start", "decided", "wait"],
  ["transcript", "start", "transcript", ""],
  ["language model, first text", "llm_sent", "llm_first_text", ""],
  ["first clause", "llm_first_text", "first_clause", ""],
  ["first speech made", "first_clause", "tts_first_audio", ""],
  ["first byte", "spoken", "first_byte", ""],
  ["first audible", "first_byte", "first_audible", "heard"],
];

export function showTurn(message) {
  const ms = { start: 0, ...message.ms };
  // An answer that was begun in the pause is kept until the turn is decided.
  if (ms.tts_first_audio !== undefined) ms.spoken = Math.max(ms.tts_first_audio, ms.decided);
  const steps = STEPS.filter(([, from, to]) => ms[from] !== undefined && ms[to] !== undefined);
  const body = document.getElementById("turn").tBodies[0];
  body.replaceChildren();
  for (const [name, from, to] of steps) {
    const row = body.insertRow();
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = name;
    row.append(head);
    for (const at of [from, to]) row.insertCell().textContent = Math.round(ms[at]);
  }
  const after = ms.first_audible === undefined ? "nothing was audible" :
    `first audible ${Math.round(ms.first_audible)} ms after the last word, ${Math.round(ms.first_audible - ms.decided)} ms after that was decided`;
  document.getElementById("turn-summary").textContent =
    `Turn ${message.turn}: ${after}; ${message.trimmed_ms} ms of silence trimmed, ${message.underruns} underruns.`;
  draw(steps, ms);
}

function draw(steps, ms) {
  const total = Math.max(...steps.map(([, , to]) => ms[to]), 1);
  const x = (at) => 10 + (780 * at) / total;
  const height = 200 / Math.max(steps.length, 1);
  const parts = [];
  for (let at = 0; at <= total; at += tick(total)) {
    parts.push(svg("line", { class: "tick", x1: x(at), x2: x(at), y1: 0, y2: 200 }));
  }
  steps.forEach(([name, from, to, kind], i) => {
    const y = i * height;
    parts.push(svg("rect", { class: `bar ${kind}`, x: x(ms[from]), y: y + 4, width: Math.max(2, x(ms[to]) - x(ms[from])), height: height - 8 }));
    const label = { ...beside(x(ms[from]), x(ms[to]), kind), y: y + height / 2 + 4 };
    parts.push(svg("text", label, `${name} ${Math.round(ms[to] - ms[from])} ms`));
  });
  document.getElementById("waterfall").replaceChildren(...parts);
}

// Behind the bar, else in front of it, else in it: wherever there is room for words.
function beside(left, right, kind) {
  if (right <= 500) return { x: right + 4, "text-anchor": "start" };
  if (left >= 260) return { x: left - 4, "text-anchor": "end" };
  return { x: left + 6, "text-anchor": "start", class: `inside ${kind}` };
}

function tick(total) {
  return [50, 100, 200, 500, 1000, 2000, 5000].find((step) => total / step <= 12) ?? 10_000;
}
