#!/usr/bin/env bash
# The commands by which PaddleNLP's documentation starts, asks and stops its server, with the model that is shipped: run by
# tools/from_nothing.sh in a system that has nothing but Debian's base and Tern's archive, unpacked in /opt/tern.
set -euo pipefail
ln -s /opt/tern/start_server /opt/tern/stop_server /usr/local/bin/
mkdir -p /models /root/run
cp /opt/tern/model/* /models/
cd /root/run

# Writes the answer to a request, its head included. A base system has no client.
ask() { # ask PORT METHOD PATH [BODY]
  local body=${4:-}
  exec 3<>"/dev/tcp/127.0.0.1/$1"
  printf '%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s' \
    "$2" "$3" "${#body}" "$body" >&3
  cat <&3
  exec 3<&-
}
expect() { # expect PATTERN TEXT
  [[ "$2" == *"$1"* ]] || {
    printf 'no "%s" in:\n%s\n' "$1" "$2"
    cat log/* | tail -n 20
    exit 1
  }
}

export MP_NUM=1
export CUDA_VISIBLE_DEVICES=0
export HEALTH_HTTP_PORT="8110"
export SERVICE_GRPC_PORT="8811"
export METRICS_HTTP_PORT="8722"
export INTER_PROC_PORT="8813"
export SERVICE_HTTP_PORT="9965"
export MAX_SEQ_LEN=8192
export MAX_DEC_LEN=1024
export BATCH_SIZE="48"
export BLOCK_BS="5"
export BLOCK_RATIO="0.75"
export MAX_CACHED_TASK_NUM="128"
export PUSH_MODE_HTTP_WORKERS="1"
export MODEL_DIR=${MODEL_DIR:-"/models"}
start_server
health=""
for _ in $(seq 600); do
  health=$(ask 8110 GET /v2/health/ready 2>/dev/null) || true
  [[ "$health" != *"200 OK"* ]] || break
  sleep 0.1
done
expect "200 OK" "$health"
expect "200 OK" "$(ask 8110 GET /v2/health/live)"

url=/v1/chat/completions
stream=$(ask 9965 POST $url '{"text": "Hello, how are you?", "req_id": "one", "max_dec_len": 64, "stream": true}')
expect '"is_end":1' "$stream"
expect '"error_code":0' "$stream"
chat='[{"role": "user", "content": "Hello, who are you"}, {"role": "user", "content": "List 3 countries and their capitals."}]'
expect '"tokens_all":' "$(ask 9965 POST $url "{\"messages\": $chat, \"max_dec_len\": 64}")"
expect '"object":"chat.completion"' "$(ask 9965 POST $url/chat/completions "{\"model\": \"default\", \"messages\": $chat, \"max_tokens\": 64}")"
expect '"object":"text_completion"' "$(ask 9965 POST $url/completions '{"model": "default", "prompt": "Hello", "max_tokens": 50}')"
expect 'nv_inference_request_success' "$(ask 8722 GET /metrics)"

# gRPC: the port is open, and all of its libraries are the archive's own or glibc's.
exec 3<>/dev/tcp/127.0.0.1/8811
exec 3<&-
read -r pid _ <log/server.pid
maps=$(awk '/\.so/ {print $6}' "/proc/$pid/maps" | sort -u)
expect /opt/tern/libtern_grpc.so "$maps"
expect /opt/tern/lib/libgrpc "$maps"
others=$(grep -v -e '^/opt/tern/' -e '/ld-' -e '/lib\(c\|m\|dl\|rt\|pthread\|resolv\)\(-2\.[0-9]*\)\{0,1\}\.so' <<<"$maps" || true)
[ -z "$others" ] || {
  printf 'libraries of the system:\n%s\n' "$others"
  exit 1
}
again=$(start_server) || true
expect "PORT: 8110 occupied! Please change the port!" "$again"
expect "all process terminated." "$(stop_server)"
echo "the archive serves over HTTP and gRPC: $(wc -l <<<"$maps") libraries, all its own or glibc's"
