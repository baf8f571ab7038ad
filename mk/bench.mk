# Each mk/NAME.mk adds its target to BENCHES; `make bench` runs them one after the other.
bench: setup ## every benchmark; tables on the terminal, figures in build/bench/NAME.json
	@for b in $(BENCHES); do $(MAKE) --no-print-directory $$b; done
