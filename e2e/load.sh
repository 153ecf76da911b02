#!/usr/bin/env bash
# Times the first look at a repository of many one-document job files with an
# overlay: fetch, render, decide and push of a record for each. The jobs are
# suspended, so that nothing runs. Usage: load.sh [JOBS] [ROUNDS]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
jobs=${1:-1000} rounds=${2:-3}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
go build -trimpath -o "$dir/trainyard" ./cmd/trainyard
git init -q -b main "$dir/repo"
mkdir -p "$dir/repo/jobs" "$dir/repo/overlays/prod"
cat >"$dir/repo/overlays/prod/kustomization.yaml" <<YAML
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
- target: {kind: Pod}
  patch: '[{op: add, path: /spec/nodeSelector, value: {pool: gpu}}]'
YAML
for i in $(seq "$jobs"); do
  cat >"$dir/repo/jobs/job-$i.yaml" <<YAML
apiVersion: trainyard.dev/v1
kind: TrainingJob
metadata: {name: job-$i, namespace: ns-$((i % 10))}
spec:
  suspend: true
  roles:
  - name: worker
    replicas: 4
    template: {spec: {containers: [{name: train, command: [train, --seed, "$i"]}]}}
YAML
done
git -C "$dir/repo" add .
git -C "$dir/repo" -c user.name=load -c user.email=load@example.com commit -qm "$jobs jobs"
for _ in $(seq "$rounds"); do
  rm -rf "$dir/state"
  git -C "$dir/repo" update-ref -d refs/heads/trainyard/status
  start=$(date +%s%N)
  "$dir/trainyard" run --repo "$dir/repo" --env prod --once --publish-interval 1s --state-dir "$dir/state" >/dev/null 2>&1
  first=$((($(date +%s%N) - start) / 1000000))
  records=$(git -C "$dir/repo" ls-tree -r --name-only trainyard/status | grep -c status.yaml)
  start=$(date +%s%N)
  "$dir/trainyard" run --repo "$dir/repo" --env prod --once --publish-interval 1s --state-dir "$dir/state" >/dev/null 2>&1
  echo "$jobs jobs: first look $first ms, $records records pushed; nothing changed, new daemon: $((($(date +%s%N) - start) / 1000000)) ms"
done
