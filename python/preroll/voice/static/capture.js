// In the audio thread: gathers 20 ms of samples, as signed 16-bit little endian.
class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.size = Math.round(sampleRate * 0.02);
    this.begin();
  }

  begin() {
    this.view = new DataView(new ArrayBuffer(2 * this.size));
    this.count = 0;
    this.power = 0;
  }

  process([input]) {
    for (const value of input[0] ?? []) {
      const clipped = Math.max(-1, Math.min(1, value));
      this.view.setInt16(2 * this.count, Math.round(clipped * 32767), true);
      this.power += clipped * clipped;
      if (++this.count === this.size) this.flush();
    }
    return true;
  }

  flush() {
    const pcm = this.view.buffer;
    this.port.postMessage({ pcm, level: Math.sqrt(this.power / this.size) }, [pcm]);
    this.begin();
  }
}
registerProcessor("capture", Capture);
