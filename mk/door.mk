# The door: memory over a million requests, and its fuzz targets.
SOAK_REQUESTS ?= 1000000
FUZZ_SECONDS ?= 60
FUZZ_TARGETS := head answer chunked sse tail body_json body_multipart tables

.PHONY: soak fuzz-door
soak: setup ## the door's memory at 1,000,000 requests against that at 100,000
	$(PY) tests/door/soak.py --requests $(SOAK_REQUESTS)

fuzz-door: ## the door's fuzz targets, FUZZ_SECONDS each; needs nightly Rust and cargo-fuzz
	@command -v cargo-fuzz >/dev/null || { echo "cargo-fuzz is missing: cargo install cargo-fuzz"; exit 2; }
	cd crates/door && for target in $(FUZZ_TARGETS); do \
	  cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -max_len=65536; done
