BENCHES += bench-plan
.PHONY: bench-plan
.cache/simpy/.installed: mk/plan.mk
	python3 -m venv .cache/simpy
	.cache/simpy/bin/pip install -q --disable-pip-version-check simpy==4.1.1
	touch $@

bench-plan: setup ## accuracy of the speed model, speed and policies of the simulator: build/bench/plan.json
	@$(MAKE) --no-print-directory .cache/simpy/.installed || echo "simpy cannot be installed here; it is left out of the table"
	$(PY) benchmarks/plan/accuracy.py
	$(PY) benchmarks/plan/simulator.py
