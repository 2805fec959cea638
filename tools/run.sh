#!/usr/bin/env bash
# Serves the model that ships in the repository on 127.0.0.1, lets it read a picture, asks it one question, prints the answers
# and the request that repeats it, and keeps serving until Ctrl-C (ONCE=1: ends after the answers).
set -euo pipefail
cd "$(dirname "$0")/.."
TERN=${TERN:-build/release/tern}
MODEL=${MODEL:-models/tern-demo-ocr}
PICTURE=${PICTURE:-models/demo.png}
QUESTION=${QUESTION:-What is 348 + 275?}
PORT=${PORT:-8180}

port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
first=$PORT
while port_taken "$PORT"; do
  PORT=$((PORT + 1))
  [ "$PORT" -gt $((first + 100)) ] && {
    echo "no free port between $first and $PORT; choose one with PORT=" >&2
    exit 1
  }
done
[ "$PORT" = "$first" ] || echo "port $first is taken; using $PORT"

export FD_LOG_DIR=${FD_LOG_DIR:-build/log}
"$TERN" serve --model "$MODEL" --host 127.0.0.1 --port "$PORT" --limit-mm-per-prompt '{"image": 100, "video": 100}' &
server=$!
trap 'kill -TERM $server 2>/dev/null || true; wait $server 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
for _ in $(seq 600); do
  port_taken "$PORT" && break
  kill -0 "$server" 2>/dev/null || {
    echo "the server ended before it was ready (see the lines above)" >&2
    exit 1
  }
  sleep 0.05
done

if grep -q '"vision_config"' "$MODEL/config.json"; then
  echo
  echo "Picture:  $PICTURE"
  echo "Text:"
  "$TERN" ocr --server "http://127.0.0.1:$PORT" "$PICTURE" | sed 's/^/  /'
fi
echo
echo "Question: $QUESTION"
printf 'Answer:   '
"$TERN" chat --url "http://127.0.0.1:$PORT" --temperature 0 -q "$QUESTION"
echo
echo "Your own pictures:"
echo "  $TERN ocr --server http://127.0.0.1:$PORT FILE..."
echo "The same with curl:"
echo "  curl http://127.0.0.1:$PORT/v1/chat/completions -H 'Content-Type: application/json' -d @- <<EOF"
echo "  {\"temperature\": 0, \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"OCR:\"},"
echo "    {\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/png;base64,\$(base64 -w0 $PICTURE)\"}}]}]}"
echo "  EOF"
[ "${ONCE:-}" = 1 ] && exit 0
echo
echo "Serving on http://127.0.0.1:$PORT until Ctrl-C."
wait "$server"
