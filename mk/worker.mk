BENCHES += bench-worker

.PHONY: bench-worker
bench-worker: setup ## what the worker of a Python stage costs, and how soon code learns that its client has left
	$(PY) benchmarks/worker/bench.py
