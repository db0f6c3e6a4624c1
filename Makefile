# Everything is made inside this folder: the environment in .venv, data and logs in .local.
PYTHON ?= python3
RUN = exec .venv/bin/python -m tests.tools

.PHONY: run test test-full test-wire test-pythons test-rest faults soak upgrade-drill restore-drill bench bench-smoke format docs pictures lock schemas sbom python

run: python  ## Start everything and say where it is; Ctrl-C stops it.
	@$(PYTHON) -m tests.tools.beforehand
	@$(PYTHON) -m tests.tools.install local
	@$(RUN) run

test: python  ## Every check and every test, beside servers of their own.
	@$(PYTHON) -m tests.tools.install test
	@.venv/bin/python -m tests.tools env
	@$(RUN) with -- .venv/bin/python -m tests.checks

test-full: python  ## The tests that take long and guard what seldom changes.
	@$(PYTHON) -m tests.tools.install test
	@$(RUN) with -- .venv/bin/python -m tests.checks full

test-wire: python  ## The tests that need programs beyond Python packages; installs those.
	@$(PYTHON) -m tests.tools.install wire
	@.venv/bin/python -m tests.tools.wire
	@$(RUN) with -- .venv/bin/python -m tests.checks wire

test-pythons: python  ## The tests that need neither rows nor a running service, on every other Python that is here.
	@$(PYTHON) -m tests.tools.install test
	@$(RUN) with -- .venv/bin/python -m tests.checks pythons

test-rest: python  ## test-full, test-wire and test-pythons at once, which leaves no core idle.
	@$(PYTHON) -m tests.tools.install wire
	@.venv/bin/python -m tests.tools.wire
	@$(RUN) with -- .venv/bin/python -m tests.checks full wire pythons

faults: python  ## Breaks what the service needs and writes docs/faults.md in half an hour; FAULTS="postgres-frozen" for some, unwritten.
	@$(PYTHON) -m tests.tools.install test
	@.venv/bin/python -m tests.tools.wire faketime
	@$(RUN) with -- .venv/bin/python -m tests.faults $(or $(FAULTS),--write)

soak: python  ## Mixed traffic with a fault now and then, and whether anything grows; writes docs/soak.md in 20 minutes, or nothing there for other MINUTES=.
	@$(PYTHON) -m tests.tools.install test
	@$(RUN) with -- .venv/bin/python -m tests.soak --minutes $(or $(MINUTES),20 --docs)

upgrade-drill: python  ## An upgrade from the release before and back, ten minutes side by side, ten restarts, while people call.
	@$(PYTHON) -m tests.tools.install test
	@RESTARTS=10 PEOPLE=8 INSTANCES=2 SIDE_BY_SIDE_SECONDS=600 .venv/bin/python -m tests.tools with -- \
	  .venv/bin/python -m pytest -m full -s tests/drills/test_upgrading.py

restore-drill: python  ## How long a database of ROWS=1000000 takes to be copied and restored.
	@$(PYTHON) -m tests.tools.install test
	@exec .venv/bin/python -m tests.drills.restoring --rows $(or $(ROWS),1000000)

bench: python  ## Measures the service against references; PARTS="status streams" for some, ROUNDS=1 for a quick look.
	@$(PYTHON) -m tests.tools.install test
	@.venv/bin/python -m tests.tools.wire wrk
	@$(RUN) with -- .venv/bin/python -m tests.bench --rounds $(or $(ROUNDS),3) $(PARTS)

bench-smoke: python  ## Whether every part of the bench still runs, in a few minutes and without a report.
	@$(PYTHON) -m tests.tools.install test
	@.venv/bin/python -m tests.tools.wire wrk
	@$(RUN) with -- .venv/bin/python -m tests.bench --short

format: python  ## Put the code in form.
	@$(PYTHON) -m tests.tools.install test
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

docs: python  ## Write what the code generates in docs/ anew: tables, the drawing of imports, the list of lasting names.
	@$(PYTHON) -m tests.tools.install test
	@UPDATE_DOCS=1 .venv/bin/python -m pytest -q tests/test_docs.py tests/lasting/test_names.py -k "generates or lasting_name"

pictures: python  ## Take the README's pictures of the console anew, with Chromium.
	@$(PYTHON) -m tests.tools.install wire
	@.venv/bin/python -m tests.tools.wire
	@UPDATE_PICTURES=1 .venv/bin/python -m tests.tools with -- .venv/bin/python -m pytest -q -m wire tests/console/test_pictures.py

lock: python  ## Write the locked requirements anew; UPGRADE=--upgrade takes the newest versions.
	@$(PYTHON) -m tests.tools.lock $(UPGRADE)

schemas: python  ## What the locked SDKs may send that is neither taken nor refused with a reason: members, items, blocks, tools, betas.
	@$(PYTHON) -m tests.tools.install test
	@.venv/bin/python -m tests.supply.schemas

sbom: python  ## Write the bill of materials (CycloneDX) to .local/build; `make test` does so too.
	@$(PYTHON) -m tests.tools.install test
	@.venv/bin/python -m tests.supply.bill

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'This needs Python 3.11 or newer as `$(PYTHON)`; name another one: make run PYTHON=python3.12' >&2; exit 1; }
