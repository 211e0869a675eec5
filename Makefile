# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet -c constraints.txt
OUT    ?= fenchel-demo
# One torch thread per test worker: two workers with two threads each would compete for two cores.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help demo test lint types browser unit docs pages notebooks package bench results format clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(BIN)/python:
	@echo "==> creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# One stamp file per set of extras: nothing is installed again until the project's own files change.
$(VENV)/.ready-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "==> installing fenchel[$*] into $(VENV) (a few minutes the first time)"
	@$(PIP) --editable '.[$*]'
	@touch $@

demo: $(VENV)/.ready-demo  ## set up, then train, shift and adapt on the embedded digits
	@echo "==> fenchel demo"
	@$(BIN)/fenchel demo --out $(OUT)
	@echo "==> demo finished: open $(OUT)/report.html"

test: lint types unit  ## set up, then lint, types and tests
	@echo "==> all checks passed"

lint: $(VENV)/.ready-dev  ## check style and formatting with ruff
	@echo "==> ruff"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.ready-dev  ## check types with mypy (strict)
	@echo "==> mypy"
	@$(BIN)/mypy

# Only root on a machine with apt can install it. The tests pass without it and say what they skipped.
APT := DEBIAN_FRONTEND=noninteractive timeout 900 apt-get -qq -o DPkg::Lock::Timeout=60
CHROMIUM := $(APT) install -y --no-install-recommends chromium
browser:  ## install Debian's chromium for the tests of HTML pages, where that is possible
	@if [ ! -x /usr/bin/chromium ] && [ "$$(uname)" = Linux ] && [ "$$(id -u)" = 0 ] \
	    && command -v apt-get >/dev/null; then \
	  echo "==> installing Debian's chromium, for the tests in a browser"; \
	  { $(CHROMIUM) || { $(APT) update && $(CHROMIUM); }; } >/dev/null 2>&1 \
	    || echo "==> chromium could not be installed"; \
	fi

unit: $(VENV)/.ready-dev browser  ## run the tests alone
	@echo "==> pytest"
	@$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

# Strict: a warning is an error. The theme's advertisement for another program is switched off.
SITE := build/site
docs: $(VENV)/.ready-docs  ## build the site with guides, notebooks and reference, strictly and offline
	@echo "==> mkdocs"
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir $(SITE)
	@echo "==> site finished: open $(SITE)/index.html, or run $(BIN)/python -m http.server -d $(SITE) to search it"

pages: $(VENV)/.ready-dev browser  ## build the site and look at every page of it in a browser
	@FENCHEL_EVERY_PAGE=1 $(BIN)/python -m pytest tests/site/test_pages.py

notebooks: $(VENV)/.ready-dev  ## run the notebooks at full size and keep what they print and draw
	@$(BIN)/python website/run_notebooks.py
	@$(BIN)/python website/figures.py

# Built without isolation, by the pinned tools of the extra.
CLEAN := build/clean
package: $(VENV)/.ready-package  ## build the package, check it, and run the demo from its wheel in a clean environment
	@rm -rf dist
	@echo "==> build"
	@$(BIN)/python -m build --no-isolation --outdir dist >/dev/null
	@$(BIN)/python -m twine check --strict dist/*
	@echo "==> the wheel in a clean environment"
	@$(PYTHON) -m venv --clear $(CLEAN)
	@$(CLEAN)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt "$$(echo dist/*.whl)[demo]"
	@cd $(CLEAN) && bin/fenchel demo --seeds 1

# The numbers of docs/performance.md; the machine should have nothing else to do.
BENCHMARKS := label memory scaling train meta runner corruptions predict methods streams ranks
bench: $(VENV)/.ready-dev  ## measure speed and memory (as ratios, within one run)
	@echo "==> benchmarks/step.py"
	@$(BIN)/python benchmarks/step.py --retain --json benchmarks/results/step.json
	@$(BIN)/python benchmarks/step.py --network thin --rounds 9 --json benchmarks/results/step-protected.json
	@for name in $(BENCHMARKS); do echo "==> benchmarks/$$name.py"; \
	  $(BIN)/python benchmarks/$$name.py --json benchmarks/results/$$name.json || exit 1; done
	@$(BIN)/python benchmarks/page.py
	@$(BIN)/python benchmarks/page.py --page docs/scale.md

results: $(VENV)/.ready-dev  ## write docs/results.md and the tables under results/ from the published cells
	@echo "==> results/publish.py"
	@$(BIN)/python results/publish.py

format: $(VENV)/.ready-dev  ## reformat the code
	@$(BIN)/ruff check --fix-only .
	@$(BIN)/ruff format .

clean:  ## remove the virtual environment and every generated file
	rm -rf $(VENV) $(OUT) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
