BENCHES += bench-door bench-load bench-cliff

.cache/sglang/.installed: mk/load.mk
	python3 -m venv .cache/sglang
	.cache/sglang/bin/python -m pip install -q --disable-pip-version-check sglang-router==0.3.2
	touch $@

.cache/aiperf/.installed: mk/load.mk
	python3 -m venv .cache/aiperf
	.cache/aiperf/bin/python -m pip install -q --disable-pip-version-check aiperf==0.13.0
	touch $@

.cache/guidellm/.installed: mk/load.mk
	python3 -m venv .cache/guidellm
	.cache/guidellm/bin/python -m pip install -q --disable-pip-version-check guidellm==0.8.1
	touch $@

.PHONY: bench-door bench-door-hold bench-load bench-load-peers bench-cliff
bench-door: setup ## the door beside HAProxy, nginx and sglang-router (those that are installed)
	@$(MAKE) --no-print-directory .cache/sglang/.installed || echo "sglang-router cannot be installed here; it is skipped"
	$(PY) benchmarks/door/bench.py

bench-door-hold: setup ## 5,000 idle streams and 5,000 slow clients held while a good client is measured
	$(PY) benchmarks/door/hold.py

bench-load: setup ## the load client's own error and cost against a mock with known truth
	$(PY) benchmarks/load/bench.py

bench-load-peers: setup ## the same beside aiperf and guidellm (840 MB and 5.7 GB to install)
	@for peer in aiperf guidellm; do $(MAKE) --no-print-directory .cache/$$peer/.installed || echo "$$peer cannot be installed here; it is skipped"; done
	$(PY) benchmarks/load/bench.py --peers

bench-cliff: setup ## thresholds found against thresholds known
	$(PY) benchmarks/cliff/bench.py
