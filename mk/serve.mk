BENCHES += bench-starts
KILLS ?= 1000
SEED ?= 1

.PHONY: bench-starts test-slow chaos
bench-starts: setup ## what Preroll adds to a start, zero and back, adoption
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r examples/chat/requirements.txt
	PYTHONPATH=tests/serve $(PY) benchmarks/starts/bench.py

test-slow: setup ## tests longer than ten seconds, and 300 kills at random instants
	PREROLL_KILLS=300 $(PY) -m pytest -m "slow or chaos"

chaos: setup ## KILLS=1000 kills of control, door, holders, workers under load (SEED=1)
	PREROLL_KILLS=$(KILLS) PREROLL_SEED=$(SEED) $(PY) -m pytest -m chaos tests/chaos
