#!/usr/bin/env bash
# Run an experiment for results/community, and pack it: scripts/community.sh EXPERIMENT NAME [KEY=VALUE …]
#
#   scripts/community.sh community_8b my-name
#   LAUNCH="torchrun --nproc-per-node=8" scripts/community.sh community_32k my-name model.path=/models/llama
#   scripts/community.sh community_8b my-name benchmark=longbench question=visible
#
# Runs are in runs/community/NAME, packs in results/community/NAME. Started again after a stop, it goes on where it was.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: scripts/community.sh EXPERIMENT NAME [KEY=VALUE ...]" >&2; exit 2; }
experiment=$1 name=$2
shift 2
runs=runs/community/$name packs=results/community/$name
read -ra launch <<<"${LAUNCH:-${PYTHON:-python}}"

"${launch[@]}" -m kvbench -m "+experiment=$experiment" "output_dir=$runs" "$@"

mkdir -p "$packs"
[ -f "$packs/submission.yaml" ] || cp "$(dirname "$0")/../results/community/template/submission.yaml" "$packs/"
for records in "$runs"/*/records*.jsonl; do
    run=$(dirname "$records")
    pack=$packs/$(basename "$run")
    [ ! -f "$pack/records.parquet" ] || [ "$records" -nt "$pack/records.parquet" ] || continue
    rm -rf "$pack"
    "${PYTHON:-python}" -m kvbench pack "$run" --out "$pack"
done
echo "fill in $packs/submission.yaml"
