# `make` does what CI does. On a machine with Go and Git nothing else is needed:
# without a C compiler the tests run without the race detector.
export GOFLAGS := -buildvcs=false
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)
PLATFORMS := linux/amd64 linux/arm64 darwin/amd64 darwin/arm64

all: fmt vet lint test build

fmt: # a check; gofmt -w . mends
	@wrong=$$(gofmt -l .); test -z "$$wrong" || { echo "not formatted (gofmt -w mends):"; echo "$$wrong"; exit 1; }

vet:
	go vet ./...

lint:
	go tool staticcheck ./...

cross: # every platform compiles and is vetted, tests too
	@for p in $(PLATFORMS); do echo "vet $$p"; CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} go vet ./... || exit 1; done

cluster: # the control plane and the node that tests run on; the first time takes about six minutes
	go run ./e2e/cluster/build
	go run ./e2e/cluster/node/build

test: cluster simulate # everything: rules, real Git, real processes, the examples, the whole program
	go test $(RACE) -timeout 40m ./...

test-e2e: cluster # the whole program alone
	go test -count=1 -timeout 40m ./e2e

DURATION := 30m
SEED := 1
ROUNDS := 1
faults: # everything that goes wrong around a daemon, with the table of docs/faults.md
	go test ./e2e -count=1 -v -run '^TestFaults$$' -seed $(SEED) -fault-rounds $(ROUNDS) -timeout 0

soak: soak-churn # the three of them for so long each: churn, kill -9 at crash points, simulated histories
	go test ./e2e -count=1 -v -run '^TestCrashSoak$$' -soak $(DURATION) -seed $(SEED) -timeout 0
	@go run ./runner/simulation/simulate -for $(DURATION) -seed $(SEED)

soak-churn: # one daemon under churn and faults: its memory, goroutines and files must not grow
	go test ./e2e -count=1 -v -run '^TestSoak$$' -soak $(DURATION) -seed $(SEED) -timeout 0

bench-kubernetes: cluster # from a push to all pods, beside a program that only creates them
	go test ./e2e -run '^$$' -bench ClusterPods -benchtime 5x

bench-memory: cluster # the most that a daemon holds of 10,000 pods, in a container's memory
	go test ./e2e -run '^$$' -bench ClusterMemory -benchtime 1x

bench:
	go test -run '^$$' -bench . -benchmem ./...

soak-kubernetes: cluster # kills everything under the daemon, one seed after another: so long on simulated nodes, then on real ones
	go test ./e2e -count=1 -v -run '^Test(Cluster|Node)Soak$$' -soak $(DURATION) -seed $(SEED) -timeout 0

LASTING := 10m
absence-kubernetes: cluster # each part of a cluster with real nodes is away for so long, five at a time: kernels have inotify for nine nodes
	go test ./e2e -count=1 -v -run '^TestNodeAbsence$$' -lasting $(LASTING) -seed $(SEED) -parallel 5 -timeout 0

HISTORIES := 20000
simulate: # histories of the runner in a simulated world, from seed SEED on
	@go run ./runner/simulation/simulate -histories $(HISTORIES) -seed $(SEED)

mutations: # plants mistakes into the program, one by one, and shows that each is caught; writes docs/mutations.md
	@go run ./runner/simulation/mutate -seed $(SEED) -list docs/mutations.md

CRASHES := 5000
soak-crash: # kill -9 at one crash point after another
	go test ./e2e -count=1 -v -run '^TestCrashSoak$$' -crashes $(CRASHES) -seed $(SEED) -timeout 0

FUZZTIME := 10m
fuzz: # every reader of job files, one after another
	@for p in $$(grep -rl 'func FuzzRead(' render | xargs -n1 dirname | sort -u); do \
	  echo "fuzz $$p"; go test "./$$p" -run '^$$' -fuzz '^FuzzRead$$' -fuzztime $(FUZZTIME) -parallel 1 || exit 1; done

build:
	go build -buildvcs=auto -trimpath -o bin/trainyard ./cmd/trainyard

image: # an OCI image in bin/trainyard.tar, without a container engine
	go run ./deploy/image -o bin/trainyard.tar

demo: build
	bin/trainyard demo

clean:
	rm -rf bin

.PHONY: all simulate mutations fmt vet lint cross cluster test test-e2e faults soak soak-churn bench bench-kubernetes bench-memory soak-kubernetes absence-kubernetes soak-crash fuzz build image demo clean
