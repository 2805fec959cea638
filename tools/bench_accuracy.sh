#!/usr/bin/env bash
# Scores the model in the repository through a server of this build: character error rates of held-out pictures and exact
# matches of the text tasks. The pictures are drawn once, with fonts of Debian packages (build/heldout); SAMPLE=1 takes the
# small sample that lies in the repository. Ends with status 1 when a bar is missed.
set -euo pipefail
cd "$(dirname "$0")/.."
TERN=${TERN:-build/release/tern}
MODEL=${MODEL:-models/tern-demo-ocr}
PYTHON=.venv/bin/python

pictures=build/heldout
if [ "${SAMPLE:-}" = 1 ]; then
  pictures=models/heldout_pictures.jsonl
elif [ ! -d "$pictures" ]; then
  "$PYTHON" -c 'import numpy, PIL' 2>/dev/null || "$PYTHON" -m pip install -q --disable-pip-version-check numpy pillow
  [ -d build/fonts/faces ] || "$PYTHON" models/train/fonts.py
  "$PYTHON" models/train/render_heldout.py --out "$pictures.part"
  mv "$pictures.part" "$pictures"
fi

out=build/bench_accuracy.txt
FD_LOG_DIR=${FD_LOG_DIR:-build/log} "$TERN" serve --model "$MODEL" --host 127.0.0.1 --port 0 --max-num-seqs 32 \
  --max-model-len 4096 >"$out" 2>&1 &
server=$!
trap 'kill -TERM $server 2>/dev/null || true; wait $server 2>/dev/null || true' EXIT
for _ in $(seq 1200); do
  grep -q 'running on' "$out" && break
  kill -0 "$server" 2>/dev/null || {
    cat "$out" >&2
    exit 1
  }
  sleep 0.05
done
url=$(sed -n '/running on http:/ {s/.*running on \(http:[^ ]*\).*/\1/p; q}' "$out")
"$PYTHON" models/train/score_ocr.py "$url" --pictures "$pictures" --text models/heldout_sample.jsonl \
  --out build/bench_accuracy.json "$@"
