DOCS_VENV := .cache/docs
$(DOCS_VENV)/.installed: pyproject.toml
	python3 -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install -q --disable-pip-version-check "pip>=25.1"
	$(DOCS_VENV)/bin/python -m pip install -q --disable-pip-version-check --group docs
	touch $@

docs: $(DOCS_VENV)/.installed ## the pages of docs/ as a site in build/site
	$(DOCS_VENV)/bin/mkdocs build --strict --quiet
