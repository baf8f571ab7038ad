BENCHES += bench-startup

.cache/py-spy/.installed: mk/startup.mk
	python3 -m venv .cache/py-spy
	.cache/py-spy/bin/python -m pip install -q --disable-pip-version-check py-spy==0.4.1
	touch $@

.PHONY: bench-startup
bench-startup: setup ## what profile and ablate say of a worker whose start is known (build/bench/startup.json)
	@$(MAKE) --no-print-directory .cache/py-spy/.installed || echo "py-spy cannot be installed here; it is skipped"
	$(PY) benchmarks/startup/bench.py
