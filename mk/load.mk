BENCHES += bench-door bench-load bench-cliff

.cache/sglang/.installed: mk/load.mk
	python3 -m venv .cache/sglang
	.cache/sglang/bin/python -m pip install -q --disable-pip-version-check sglang-router==0.3.2
	touch $@

.PHONY: bench-door bench-door-hold bench-load bench-cliff
bench-door: setup ## the door beside HAProxy, nginx and sglang-router (those that are installed)
	@$(MAKE) --no-print-directory .cache/sglang/.installed || echo "sglang-router cannot be installed here; it is skipped"
	$(PY) benchmarks/door/bench.py

bench-door-hold: setup ## 5,000 idle streams and 5,000 slow clients held while a good client is measured
	$(PY) benchmarks/door/hold.py

bench-load: setup ## the load client's own error and cost against a mock with known truth
	$(PY) benchmarks/load/bench.py

bench-cliff: setup ## thresholds found against thresholds known
	$(PY) benchmarks/cliff/bench.py
