// The microphone as 16-bit samples at the rate of the audio device, 20 ms at a time.
export class Microphone {
  constructor(send, level) {
    this.send = send;
    this.level = level;
  }

  // Returns the sample rate in Hz. Throws when there is no microphone or it is not allowed.
  async open() {
    if (!navigator.mediaDevices) throw new Error("a microphone needs https or localhost");
    this.stream = await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
    });
    this.context = new AudioContext({ latencyHint: "interactive" });
    await this.context.audioWorklet.addModule("capture.js");
    const source = this.context.createMediaStreamSource(this.stream);
    this.node = new AudioWorkletNode(this.context, "capture", { numberOfOutputs: 0 });
    this.node.port.onmessage = ({ data }) => {
      this.send(data.pcm);
      this.level(data.level);
    };
    source.connect(this.node);
    return this.context.sampleRate;
  }

  close() {
    this.stream?.getTracks().forEach((track) => track.stop());
    this.context?.close();
    this.level(0);
  }
}
