// The page's only state: one conversation. Microphone → WebSocket → speakers, and what it shows.
import { Microphone } from "./microphone.js";
import { Speaker } from "./playback.js";
import { Lanes } from "./lanes.js";
import { showTurn } from "./waterfall.js";

const $ = (id) => document.getElementById(id);
const lanes = new Lanes($("lanes").tBodies[0]);
let call = null;

class Call {
  constructor() {
    this.turn = 0;
    this.answer = null;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    this.speaker = new Speaker((turn, ms) => this.send({ type: "heard", turn, ms }));
    this.microphone = new Microphone((pcm) => this.sendAudio(pcm), showLevel);
    this.url = (rate) => `${scheme}//${location.host}/v1/talk?rate=${rate}`;
  }

  async start() {
    const rate = await this.microphone.open();
    await this.speaker.open();
    this.socket = new WebSocket(this.url(rate));
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = (event) => this.receive(event.data);
    this.socket.onclose = () => stop();
    await new Promise((resolve, reject) => {
      this.socket.onopen = resolve;
      this.socket.onerror = () => reject(new Error("the service does not answer"));
    });
  }

  sendAudio(pcm) {
    // A connection that cannot keep up loses audio here rather than piling it up.
    if (this.socket?.readyState === WebSocket.OPEN && this.socket.bufferedAmount < 256 * 1024) {
      this.socket.send(pcm);
    }
  }

  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  receive(data) {
    if (typeof data !== "string") return this.speaker.push(data);
    const message = JSON.parse(data);
    const act = this[`on_${message.type}`];
    if (act) act.call(this, message);
  }

  on_ready() { setState("Listening"); }
  on_speech_started() { setState("Hearing you"); lanes.begin("stt"); }
  on_speech_stopped() { setState("Thinking"); }
  on_partial(message) { $("partial").textContent = (this.final ?? "") + message.text; lanes.pulse("stt"); }
  on_final(message) {
    this.final = message.is_end ? "" : (this.final ?? "") + message.text;
    $("partial").textContent = this.final;
    if (message.is_end) lanes.end("stt");
  }
  on_transcript(message) { addLine("user", "You", message.text); $("partial").textContent = ""; lanes.begin("llm"); }
  on_answer_started(message) {
    this.turn = message.turn;
    this.answer = null;
    this.speaker.begin(message.turn, message.rate);
    $("quiet").disabled = false;
  }
  on_text(message) {
    this.answer ??= addLine("answer", "Answer", "");
    this.answer.append(message.text);
    lanes.pulse("llm");
  }
  on_audio_end() { lanes.end("llm"); lanes.end("tts"); }
  on_interrupted() {
    this.speaker.stop();
    this.answer?.parentElement.classList.add("cut");
    lanes.end("llm");
    lanes.end("tts");
  }
  on_answer_ended() { $("quiet").disabled = true; setState("Listening"); }
  on_timings(message) { showTurn(message); lanes.turn(message); }
  on_error(message) { $("problem").textContent = message.message; }

  stop() {
    this.socket?.close();
    this.microphone.close();
    this.speaker.close();
  }
}

function addLine(kind, who, text) {
  const item = document.createElement("li");
  item.className = kind;
  const name = document.createElement("b");
  name.textContent = `${who}: `;
  const words = document.createElement("span");
  words.textContent = text;
  item.append(name, words);
  $("said").append(item);
  while ($("said").children.length > 100) $("said").firstChild.remove();
  return words;
}

function setState(text) { $("state").textContent = text; }
function showLevel(level) { $("level-bar").style.transform = `scaleX(${Math.min(1, level * 4)})`; }

function stop() {
  call?.stop();
  call = null;
  $("talk").setAttribute("aria-pressed", "false");
  $("talk").textContent = "Start talking";
  $("quiet").disabled = true;
  setState("Not connected");
}

$("talk").addEventListener("click", async () => {
  if (call) return stop();
  $("problem").textContent = "";
  setState("Connecting");
  $("talk").setAttribute("aria-pressed", "true");
  $("talk").textContent = "Stop talking";
  call = new Call();
  try {
    await call.start();
  } catch (error) {
    stop();
    $("problem").textContent = `That did not work: ${error.message}`;
  }
});
$("quiet").addEventListener("click", () => { call?.send({ type: "cancel" }); call?.speaker.stop(); });
lanes.draw();
