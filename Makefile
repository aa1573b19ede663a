# Every target sets up what it needs in .venv; a second call is quick.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test check bench docs results attack audit torture

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("prism needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup  ## two minutes: shipped weights under occlusion, slot maps, a short training, one report
	$(BIN)/python examples/demo.py

test: setup  ## two workers with one thread each; TESTS=--no-skips fails where a test is skipped
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile $(TESTS)

attack: setup  ## ten minutes of bad inputs on one core: counts into results/reliability
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.attack --seed 0 --minutes 10 --out results/reliability

audit: setup  ## known vulnerabilities in the pinned packages, if the advisory database can be reached
	@found=$$($(BIN)/pip-audit -r constraints.txt --no-deps --disable-pip --progress-spinner off 2>&1); code=$$?; \
	if [ $$(echo "$$found" | grep -c "could not be audited") -ge $$(grep -c == constraints.txt) ]; \
	then echo "the advisory database cannot be reached: nothing was audited"; \
	else echo "$$found"; exit $$code; fi

torture: setup  ## trainings killed 100 times must end like undisturbed ones; results/reliability has counts and times
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.torture

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/vulture

docs: setup  ## the site, into build/docs; a dead link stops it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "to read it with its search: $(BIN)/python -m http.server --directory build/docs"

STEPS := --steps 2.5,3.2,3.7,2.5
PEERS := pvt_v2_b1 xcit_tiny_24_p16_224 davit_tiny biformer_tiny bixt_tiny_patch16 pacavit_tiny debiformer_tiny prism_tiny
ENGINES := --engine eager,compile,onnxruntime,openvino
BENCH ?= --threads 1 --repeats 5
bench: setup  ## the tables under results/speed, on an idle machine; BENCH="--threads 4 --repeats 5" and the like are passed on
	$(BIN)/prism speed $(PEERS) $(STEPS) $(ENGINES) --batch 1 $(BENCH) --out results/speed/batch1
	$(BIN)/prism speed $(PEERS) $(STEPS) $(ENGINES) --batch 16 $(BENCH) --out results/speed/batch16
	$(BIN)/prism speed pvt_v2_b1 prism_tiny $(STEPS) --train --batch 16 $(BENCH) --out results/speed/training224
	$(BIN)/prism speed pvt_v2_b0 prism_nano $(STEPS) --train --size 112 --batch 32 $(BENCH) --out results/speed/training112
	$(BIN)/prism speed prism_tiny@5 prism_tiny@2.5 $(ENGINES) --batch 1 $(BENCH) --out results/speed/steps
	$(BIN)/prism speed prism_tiny $(STEPS) --size 224,448 $(BENCH) --out results/speed/resolution

results: setup  ## the trainings of results/imagenette-112: DATA=path/to/imagenette2-160; a day on one core, can be interrupted and resumed
	results/imagenette-112/run
