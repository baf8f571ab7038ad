// Plays the answer's samples without gaps, and tells how much of it was heard.
export class Speaker {
  constructor(heard) {
    this.heard = heard;
    this.sources = new Set();
    this.turn = 0;
  }

  async open() {
    this.context = new AudioContext({ latencyHint: "interactive" });
    await this.context.resume();
    this.timer = setInterval(() => this.report(), 200);
  }

  begin(turn, rate) {
    this.stop();
    this.turn = turn;
    this.rate = rate;
    this.until = 0;
    this.began = null;
    this.length = 0;
  }

  push(data) {
    const whole = new DataView(data);
    const count = whole.byteLength >> 1;
    if (!count || !this.turn) return;
    const buffer = this.context.createBuffer(1, count, this.rate);
    const samples = buffer.getChannelData(0);
    for (let i = 0; i < count; i++) samples[i] = whole.getInt16(2 * i, true) / 32768;
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    const now = this.context.currentTime;
    const at = Math.max(now + 0.02, this.until);
    this.began ??= at;
    if (at > this.until && this.until) this.began += at - this.until;
    source.start(at);
    this.until = at + buffer.duration;
    this.length += buffer.duration;
    this.sources.add(source);
    source.onended = () => this.sources.delete(source);
  }

  report() {
    if (!this.turn || this.began === null) return;
    const played = Math.min(this.length, this.context.currentTime - this.began);
    if (played > 0) this.heard(this.turn, Math.round(1000 * played));
  }

  stop() {
    this.report();
    for (const source of this.sources) source.stop();
    this.sources.clear();
    this.turn = 0;
  }

  close() {
    clearInterval(this.timer);
    this.sources.clear();
    this.context?.close();
  }
}
