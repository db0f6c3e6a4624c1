#!/usr/bin/env bash
# A session of a shell by curl: BASE_URL, EMAIL, PASSWORD and VERSION in the environment say where, who and what.
set -euo pipefail
: "${BASE_URL:=http://127.0.0.1:8000}" "${VERSION:=1.0.0}"
FOLDER=$(mktemp -d)
trap 'rm -rf "$FOLDER"' EXIT
chmod 700 "$FOLDER"

# A member of the JSON on standard input, which the service writes without blanks: a string, or a number.
member() { sed -n -e "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" -e "s/.*\"$1\":\([0-9][0-9]*\).*/\1/p"; }

# A call: METHOD PATH [OPTIONS OF CURL...]. Secrets go to curl by files and standard input, never as arguments, which
# every user of the machine can read.
call() {
  local method=$1 path=$2
  shift 2
  curl --silent --show-error --fail-with-body --max-time 60 --request "$method" "$BASE_URL$path" \
    --header @"$FOLDER/authorization" --header 'Content-Type: application/json' "$@"
}

keep() {
  member refresh <"$FOLDER/pair" >"$FOLDER/refresh"
  echo "Authorization: Bearer $(member access <"$FOLDER/pair")" >"$FOLDER/authorization"
}

# Sign in. (A password with a quote or a backslash wants escaping.)
: >"$FOLDER/authorization"
sign_in() {
  printf '{"email": "%s", "password": "%s"%s}' "$EMAIL" "$PASSWORD" "$1" |
    call POST /v1/auth/login --data-binary @- >"$FOLDER/pair"
}
if ! sign_in ''; then
  # A problem is written with blanks.
  sed -i -e 's/": /":/g' -e 's/, "/,"/g' "$FOLDER/pair"
  # With no device free a shell lists them, and its person chooses one: here by its name in SIGN_OUT.
  if [ "$(member code <"$FOLDER/pair")" = device_limit_reached ]; then
    grep -o '"device":"[^"]*"' "$FOLDER/pair" | sed 's/"device":"\(.*\)"/device: \1/'
    chosen=$(grep -o "\"id\":\"[^\"]*\",\"device\":\"${SIGN_OUT:-none}\"" "$FOLDER/pair" | head -n 1 | member id) || true
  fi
  [ -n "${chosen:-}" ] && sign_in ", \"end_session\": \"$chosen\"" || { cat "$FOLDER/pair" >&2; exit 1; }
fi
keep

# Read the licence, and keep its tag: curl stores it and sends it back by itself. 304 means that nothing has changed.
licence() {
  call GET /v1/license/status --output "$FOLDER/licence" --write-out '%{http_code}' \
    --etag-compare "$FOLDER/etag" --etag-save "$FOLDER/etag"
}
licence >/dev/null
echo "licence: $(member status <"$FOLDER/licence")"
text=$(member text <"$FOLDER/licence")
[ -z "$text" ] || echo "message: $text"
minimum=$(member minimum_version <"$FOLDER/licence")
# A tilde sorts before the end, as a pre-release comes before its release.
first=$(printf '%s\n' "$minimum" "$VERSION" | tr - '~' | sort --version-sort | head -n 1 | tr '~' -)
if [ -n "$minimum" ] && [ "$first" != "$minimum" ]; then
  # The update screen alone.
  echo "update: $VERSION must become $minimum or newer"
  exit
fi
echo "asked again: $(licence)"

# Refresh. The key is made once for a refresh token and repeated with it until an answer arrives: with the same key the
# service answers with the same successor, so a lost answer does not sign the person out.
before=$(cat "$FOLDER/refresh")
od -An -tx1 -N16 /dev/urandom | tr -d ' \n' >"$FOLDER/pending"
printf '{"refresh": "%s"}' "$before" |
  call POST /v1/auth/refresh --data-binary @- --output "$FOLDER/pair" \
    --header "Idempotency-Key: $(cat "$FOLDER/pending")" --retry 3 --retry-delay 1 --retry-all-errors
keep
rm "$FOLDER/pending"
echo "renewed: $([ "$before" != "$(cat "$FOLDER/refresh")" ] && echo true)"

# Stream a model call: each event is a chunk; lines that begin with a colon keep a silent stream alive.
echo -n 'answer: '
call POST /v1/llm/stream --no-buffer \
  --data '{"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 50}' |
  while IFS= read -r line; do
    case $line in
      'data: [DONE]') echo ;;
      'data: {"error"'*) echo "$line" >&2; exit 1 ;;
      'data: '*) printf '%s' "$(member content <<<"$line")" ;;
    esac
  done

# Show the usage.
echo "usage: $(call GET /v1/usage/me | sed 's/.*"output":{"used":\([0-9]*\).*/\1/') tokens out"

# Send telemetry. After a failure send the same event again: one that is stored already counts as a duplicate.
event='{"id": "%s", "name": "session_shown", "occurred_at": "%s", "properties": {"from": {"program": "curl"}}}'
# shellcheck disable=SC2059
printf "{\"events\": [$event]}" "$(cat /proc/sys/kernel/random/uuid)" "$(date -u +%Y-%m-%dT%H:%M:%SZ)" |
  call POST /v1/telemetry --data-binary @- >"$FOLDER/taken"
echo "telemetry: $(member accepted <"$FOLDER/taken") accepted"

# Log out.
printf '{"refresh": "%s"}' "$(cat "$FOLDER/refresh")" | call POST /v1/auth/logout --data-binary @-
echo 'signed out: true'
