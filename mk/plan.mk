BENCHES += bench-plan
.PHONY: bench-plan
bench-plan: setup ## the plan's accuracy on held-out data and the simulator's speed (build/bench/plan.json)
	$(PY) benchmarks/plan/accuracy.py
	$(if $(wildcard benchmarks/plan/simulator.py),$(PY) benchmarks/plan/simulator.py)
