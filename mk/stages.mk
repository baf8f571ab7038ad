# Stages of one's own: their cost beside LitServe, starts, batches.
BENCHES += bench-stages

.cache/litserve/.installed: mk/stages.mk
	python3 -m venv .cache/litserve
	.cache/litserve/bin/python -m pip install -q --disable-pip-version-check litserve==0.2.19 numpy==2.4.6 pandas==3.1.1 scipy==1.17.1 sympy==1.14.0
	touch $@

.PHONY: bench-stages
bench-stages: setup .cache/litserve/.installed ## a no-op stage beside LitServe, forked starts, batches (build/bench/stages.json)
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r examples/embed/requirements.txt
	$(PY) benchmarks/stages/bench.py
