#!/usr/bin/env bash
# Scores the model in the repository through a server of this build: character error rates of held-out pictures and exact
# matches of the text tasks, in bfloat16, with every format of quantized weights and with 8-bit caches. The pictures are
# drawn once, with fonts of Debian packages (build/heldout); SAMPLE=1 takes the small sample that lies in the repository,
# FORMATS="bf16 wint8" only these. Ends with status 1 when a bar is missed: bfloat16's own, or how much worse than it a
# format may be (tools/accuracy_rows.py).
set -euo pipefail
cd "$(dirname "$0")/.."
TERN=${TERN:-build/release/tern}
MODEL=${MODEL:-models/tern-demo-ocr}
PYTHON=.venv/bin/python

pictures=build/heldout
if [ "${SAMPLE:-}" = 1 ]; then
  pictures=models/heldout_pictures.jsonl
elif [ ! -d "$pictures" ]; then
  "$PYTHON" -c 'import fontTools, numpy, PIL' 2>/dev/null ||
    "$PYTHON" -m pip install -q --disable-pip-version-check fonttools numpy pillow
  [ -d build/fonts/faces ] || "$PYTHON" models/train/fonts.py
  "$PYTHON" models/train/render_heldout.py --out "$pictures.part"
  mv "$pictures.part" "$pictures"
fi

declare -A asked=(
  ["bf16"]="" ["wint8"]="wint8" ["block_wise_fp8"]="block_wise_fp8" ["wint4"]="wint4"
  ["wint4-64"]='{"quantization":"wint4","group_size":64}' ["wint4-128"]='{"quantization":"wint4","group_size":128}'
  ["kv-int8"]='{"quantization":"kvcache","kv_cache_quant_type":"int8"}'
  ["kv-fp8"]='{"quantization":"kvcache","kv_cache_quant_type":"float8_e4m3fn"}'
)
scores=build/bench_accuracy
mkdir -p "$scores"
out=$scores/server.txt
server=
trap '[ -z "$server" ] || { kill -TERM $server 2>/dev/null || true; wait $server 2>/dev/null || true; }' EXIT

# Scores one format; the status is that of bfloat16's own bars.
score() {
  local name=$1 url status=0
  shift
  echo "== $name"
  FD_LOG_DIR=${FD_LOG_DIR:-build/log} "$TERN" serve --model "$MODEL" --host 127.0.0.1 --port 0 --max-num-seqs 32 \
    --max-model-len 4096 --quantization "${asked[$name]}" >"$out" 2>&1 &
  server=$!
  for _ in $(seq 1200); do
    url=$(sed -n '/running on http:/ {s/.*running on \(http:[^ ]*\) .*/\1/p; q}' "$out")
    [ -z "$url" ] || break
    kill -0 "$server" 2>/dev/null || {
      cat "$out" >&2
      exit 1
    }
    sleep 0.05
  done
  "$PYTHON" models/train/score_ocr.py "$url" --pictures "$pictures" --text models/heldout_sample.jsonl \
    --out "$scores/$name.json" "$@" || status=$?
  kill -TERM "$server" && wait "$server" || true
  server=
  [ -e "$scores/$name.json" ] || exit 1
  [ "$name" != bf16 ] || return "$status"
}

met=0
rm -f "$scores"/*.json
for name in ${FORMATS:-bf16 wint8 block_wise_fp8 wint4-64 wint4-128 wint4 kv-int8 kv-fp8}; do
  [ -n "${asked[$name]+is}" ] || {
    echo "bench_accuracy.sh: $name is none of ${!asked[*]}" >&2
    exit 2
  }
  score "$name" "$@" || met=1
done
"$PYTHON" tools/accuracy_rows.py "$scores" || met=1
exit "$met"
